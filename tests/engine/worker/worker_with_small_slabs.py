"""Run as a script: the real worker in slabs so small that each tenant of a tiny model has several."""

import sys

from engine.memory import planner

planner.MIN_SLAB_BYTES = 120 << 10

from engine.worker import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
