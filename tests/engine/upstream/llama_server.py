"""llama.cpp's own server, as the package xllamacpp holds it, in the place of the program `llama-server`.

python llama_server.py MODEL.gguf PORT SLOTS
"""

from __future__ import annotations

import signal
import sys

import xllamacpp

model, port, slots = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames, params.port = ["127.0.0.1"], int(port)
params.n_ctx, params.n_parallel = 4096 * int(slots), int(slots)
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
