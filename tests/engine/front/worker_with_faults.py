"""Run as a script: the real worker in slabs so small that moves have many pieces. The file named by FT_TEST_FAULT, while there
is one, says what goes wrong next: `where` (in mid-"prefill", or in the middle of a "move") and `what`: "memory" is an
allocation that fails, "kill" the end of the process, "hang" a wait for ever. It is removed then."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from engine.memory import planner

planner.MIN_SLAB_BYTES = 120 << 10

from engine.runner.runner import CpuRunner  # noqa: E402
from engine.scheduler.moves import Mover  # noqa: E402
from engine.worker import main  # noqa: E402

FAULT = Path(os.environ["FT_TEST_FAULT"])


def reached(where: str) -> None:
    if not FAULT.exists() or json.loads(FAULT.read_text())["where"] != where:
        return
    what = json.loads(FAULT.read_text())["what"]
    FAULT.unlink()
    if what == "memory":
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


step, grow = CpuRunner.step, Mover._grow


def step_with_fault(self, slices, aborted):
    if any(s.start > 0 and len(s.tokens) > 1 for s in slices):
        reached("prefill")
    return step(self, slices, aborted)


def grow_with_fault(self, wanted):
    reached("move")  # who gives has given something, and nobody has got anything yet
    return grow(self, wanted)


CpuRunner.step, Mover._grow = step_with_fault, grow_with_fault

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
