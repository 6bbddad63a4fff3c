"""The commands of the guide are those of `ft`, called as if they had been typed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.output import note

FT = (sys.executable, "-P", "-m", "ftagent")
INTERRUPTED = 130


def call(context: Context, *words: str) -> int:
    """`ft WORDS` in this process and on this terminal; errors are told as `ft` tells them. Returns the exit code."""
    from ftagent.commandline.runner import Globals, run_command

    print(context.out(f"$ ft {shlex.join(words)}", "dim"), flush=True)
    try:
        return run_command(words[0], list(words[1:]), Globals(context.debug, context.colour, context.no_input))
    except FtError as error:
        note(f"ft: {error.message}")
        if error.hint:
            note(f"    {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        note("\nStopped.")
        return INTERRUPTED


def document(context: Context, *words: str) -> dict[str, Any]:
    """What `ft WORDS --json` prints; {} when it is no document."""
    print(context.out(f"$ ft {shlex.join(words)}", "dim"), flush=True)
    done = subprocess.run(
        [*FT, *words, "--json"],
        env=dict(context.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {}
    return found if done.returncode == 0 and isinstance(found, dict) else {}
