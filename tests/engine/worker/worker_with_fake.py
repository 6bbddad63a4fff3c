"""Run as a script: the real worker process, with a model whose memory is hashes. Arguments are the worker's own, after
the seconds a layer takes and what loading does (ok, weights, memory, hang), or that experts are found "damaged" by a move."""

import sys
import time

from engine.bench import fake_runner as fake
from engine.errors import WeightsError
from engine.experts.audit import ExpertsDamaged
from engine.memory.plan import build_pools
from engine.scheduler.sharing import Experts
from engine.worker import Engine, parse_config, serve

layer_s, how = float(sys.argv[1]), sys.argv[2]


class Damaged:
    """Slots of which one changes after the first check."""

    least = most = checks = 0

    def ask(self, slots):
        pass

    def verify(self):
        self.checks += 1
        if self.checks > 1:
            raise ExpertsDamaged("Expert 3 of MoE layer 1 differs between slot 7 and its source.", "Test the memory.")


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
    experts = Experts(Damaged()) if how == "damaged" else Experts()
    return Engine(pools, runner, 11, lambda grammar: None, lambda: (runner.computed_tokens, 3), experts=experts)


sys.exit(serve(parse_config(sys.argv[3:]), load))
