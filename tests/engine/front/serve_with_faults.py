"""`engine serve` with the real worker, in which worker_with_faults.py makes one thing go wrong."""

import sys
from pathlib import Path

from engine import __main__
from engine.front.supervision import child, restarts

restarts.BACKOFF_S = (0.1,) * 9  # each test costs one
child.WORKER_COMMAND = (sys.executable, "-P", str(Path(__file__).parent / "worker_with_faults.py"))
sys.exit(__main__.main(["serve", *sys.argv[1:]]))
