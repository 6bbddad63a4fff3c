"""The real `ft` with an engine that computes nothing: its front is real, its worker the one of fake_worker.py.

What an agent does with a window follows from what it was told and from what our front counts, refuses and parses. So any
window can be filled in seconds; the same sessions with the real worker take minutes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ftagent.local_engine import command

FAKE = Path(__file__).parents[1] / "engine" / "front" / "fake_serve.py"


def engine_command(*arguments: str) -> list[str]:
    if arguments[0] != "serve":
        return REAL(*arguments)
    rules = Path(os.environ["FT_HOME"]) / "worker-rules.json"
    return ["/usr/bin/env", f"FT_FAKE_WORKER={rules}", sys.executable, str(FAKE), *arguments[1:]]


REAL = command.engine_command
command.engine_command = engine_command

if __name__ == "__main__":
    from ftagent.cli import main  # whoever imports the command by its name gets this one

    raise SystemExit(main())
