"""Run as a script: the real worker process, with a model whose memory is hashes. Arguments are the worker's own, after
the seconds a layer takes and what loading does (ok, weights, memory, hang)."""

import sys
import time

from engine.bench import fake_runner as fake
from engine.errors import WeightsError
from engine.memory.plan import build_pools
from engine.worker import Engine, parse_config, serve

layer_s, how = float(sys.argv[1]), sys.argv[2]


def load(config, plan, progress):
    progress("weights", 1, 2)
    if how == "weights":
        raise WeightsError("dense.bin is truncated: 1 bytes, should be 2.", "Make it again.")
    if how == "memory":
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
    while how == "hang":
        time.sleep(0.05)
    progress("weights", 2, 2)
    progress("warm-up", 1, 1)
    pools = build_pools(plan)
    hybrid = pools.states is not None
    runner = fake.FakeRunner(pools.page_tokens, 11, hybrid, layers=4, on_layer=lambda: time.sleep(layer_s))
    return Engine(pools, runner, 11, lambda grammar: None, lambda: (runner.computed_tokens, 3))


sys.exit(serve(parse_config(sys.argv[3:]), load))
