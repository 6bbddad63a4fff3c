"""The real `ft` with another limit on silence than an hour, which its launcher writes into the agent's own settings as always.

    python impatient_ft.py SECONDS [--compute-nothing] [--until-it-tries-again] COMMAND...

With the second option it ends, and the agent with it, as soon as a second request shows that the agent has given up the first.
The first one is that of fake_engine_ft.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from harnesses.contract import LaunchContext

NOTHING, AGAIN = "--compute-nothing", "--until-it-tries-again"


def watch() -> None:
    while True:
        time.sleep(0.5)
        with contextlib.suppress(OSError, ValueError):
            if len([request for request in requests() if not request["side"]]) > 1:
                os.kill(os.getpid(), signal.SIGTERM)
                return


def requests() -> list[dict[str, Any]]:
    engine = json.loads(Path(os.environ["FT_HOME"], "runtime", "engine.json").read_text())
    headers = {"authorization": f"Bearer {engine['admin_token']}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{engine['port']}/v1/requests", headers=headers)
    with urllib.request.urlopen(asked, timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)["requests"]
        return found


seconds, *command = sys.argv[1:]
if command[0] == NOTHING:
    import fake_engine_ft  # noqa: F401  takes the engine's place

    command = command[1:]
if command[0] == AGAIN:
    command = command[1:]
    if command[0] == "launch":
        threading.Thread(target=watch, daemon=True).start()
init = LaunchContext.__init__


def impatient(self: LaunchContext, *values: Any, **fields: Any) -> None:
    init(self, *values, **{"silence_limit_s": int(seconds), **fields})


LaunchContext.__init__ = impatient  # type: ignore[method-assign]
sys.argv = ["ft", *command]

from ftagent.cli import main  # noqa: E402  whoever imports the engine's command by its name gets the other one

raise SystemExit(main())
