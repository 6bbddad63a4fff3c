"""llama.cpp as its own Python has it: a model with a context over it, timed batches, one JSON answer for each JSON line.

Imported by the scripts that run under that Python, serve_llama.py and agent/serve_peer.py; needs nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import llama_cpp as api


def load(path: str, mmap: bool = False) -> Any:
    """A model. `mmap` leaves the weights in the file and forgoes repacked ones, which would be a copy in RAM."""
    settings = api.llama_model_default_params()
    settings.load_mode = api.LLAMA_LOAD_MODE_MMAP if mmap else api.LLAMA_LOAD_MODE_NONE
    settings.use_extra_bufts = not mmap
    model = api.llama_model_load_from_file(path.encode(), settings)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    return model


def context(model: Any, tokens: int, threads: int, batch: int, ubatch: int, sequences: int = 1) -> Any:
    """Room for `tokens` tokens of all `sequences` together; at most `batch` in one call, `ubatch` of them at a time."""
    settings = api.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = tokens, batch, ubatch
    settings.n_seq_max, settings.kv_unified = sequences, sequences > 1
    settings.n_threads = settings.n_threads_batch = threads
    settings.no_perf = True
    made = api.llama_init_from_model(model, settings)
    if not made:
        raise SystemExit(f"llama.cpp cannot make a context of {tokens} tokens")
    return made


def timed(made: Any, batch: Any) -> tuple[int, float]:
    """(llama_decode's code, seconds) of one batch, its work finished."""
    begin = time.perf_counter()
    code = api.llama_decode(made, batch)
    api.llama_synchronize(made)
    return code, time.perf_counter() - begin


def serve(start: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Answer each line of stdin, after a first line that tells the version. Whatever llama.cpp prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    answer = start()
    print(json.dumps({"version": api.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
