"""Run as a script: the real worker process, with a model whose memory is hashes. Arguments are the worker's own, after
the path of fake_runner.py, the seconds a layer takes, and what loading does (ok, weights, memory, hang)."""

import importlib.util
import sys
import time

from engine.errors import WeightsError
from engine.memory.plan import build_pools
from engine.worker import Engine, parse_config, serve

path, layer_s, how = sys.argv[1], float(sys.argv[2]), sys.argv[3]
spec = importlib.util.spec_from_file_location("fake_runner", path)
fake = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)


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


sys.exit(serve(parse_config(sys.argv[4:]), load))
