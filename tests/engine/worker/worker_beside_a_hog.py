"""Run as a script: the real worker in small slabs, on a machine that only it and one other program share, and with its books
checked when it shuts down.

The first argument is a file that describes the machine: `bytes` that both may hold, the `pid` of the other program and its
`calm_bytes`, those it held before it took any. What both hold is measured; only the size of the machine is made up. The
second argument is where the result of the check goes: "clean", or what is wrong.
"""

from __future__ import annotations

import ctypes
import json
import sys
import traceback
from pathlib import Path

from engine.device import cpu
from engine.memory import foreign, planner
from engine.memory.available import Available

planner.MIN_SLAB_BYTES = 120 << 10
foreign.SETTLE_S, foreign.RETURN_S = 0.3, 2.0  # so that it comes and goes often
RESERVE_BYTES = 1 << 20

PR_SET_THP_DISABLE = 41
ctypes.CDLL(None).prctl(
    PR_SET_THP_DISABLE, 1, 0, 0, 0
)  # a slab here is smaller than a huge page, which would be held for it

allocate, made = cpu.allocate_arena, []


def remembered(n_bytes):
    made.append(allocate(n_bytes))
    return made[-1]


cpu.allocate_arena = remembered

from engine import worker  # noqa: E402


def anonymous_bytes(pid: int) -> int:
    """What a process holds that is in no file; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


class Machine:
    def __init__(self, description: Path) -> None:
        self.description, self.arena = description, None

    def read(self) -> Available:
        told = json.loads(self.description.read_text())
        theirs = max(0, anonymous_bytes(told["pid"]) - told["calm_bytes"])
        ours = cpu.touched_bytes(self.arena)
        return Available(max(0, told["bytes"] - theirs - ours), told["bytes"], "the machine of a test")


class Checked(worker.Worker):
    """Keeps what it assembles, for the check."""

    def _assemble(self, plan, engine):
        machine.arena = next(memory for memory in made if memory.numel() == engine.pools.arena.bytes)
        self.scheduler = super()._assemble(plan, engine)
        checked.append(self.scheduler)
        return self.scheduler


def check(scheduler) -> None:
    """All books agree, and when the cache is emptied nothing is left."""
    mover, cache, store, pools = scheduler.memory.mover, scheduler._cache, scheduler._residency.store, scheduler._pools
    assert not scheduler.running and not len(scheduler.waiting)
    mover.stop()
    mover.check()
    cache.check()
    store.check()
    assert pools.pages.used == len({node.page for node in cache.nodes()})
    assert pools.states.used == len(store)
    mover.ask(None)  # compares an expert with its source
    cache.evict(1 << 30)
    assert pools.pages.used == pools.states.used == 0
    mover.check()


machine, checked = Machine(Path(sys.argv[1])), []
worker.watch = lambda device: foreign.Foreign(machine, RESERVE_BYTES)
worker.Worker = Checked

if __name__ == "__main__":
    code = worker.main(sys.argv[3:])
    try:
        check(checked[0])
        found = "clean"
    except AssertionError:
        found = traceback.format_exc()
    Path(sys.argv[2]).write_text(found)
    sys.exit(code)
