"""`engine serve` with the worker of fake_worker.py."""

import os
import sys
from pathlib import Path

from engine import __main__
from engine.front.supervision import child, restarts

if os.environ.get("FT_FAKE_PATIENCE") == "none":
    restarts.BACKOFF_S = ()
child.WORKER_COMMAND = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))
sys.exit(__main__.main(["serve", *sys.argv[1:]]))
