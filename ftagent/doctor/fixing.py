"""Running the fix of a check: the one entry of `ft doctor --fix` and of the dashboard."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from ftagent.doctor.check import Check

FT = (sys.executable, "-P", "-m", "ftagent")
NOT_THERE = 127


def argv_of(check: Check, ft: Sequence[str] = FT, env: Mapping[str, str] | None = None) -> list[str] | None:
    """The words to run; None where there is nothing that ft may run, and the command is for the person's own shell."""
    if not check.fixable:
        return None
    words = shlex.split(check.fix)
    if words[0] == "ft":
        return [*ft, *words[1:]]
    found = which(words[0], path=(os.environ if env is None else env).get("PATH"))
    return None if found is None else words


def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, quiet: bool = False) -> int:
    """In the foreground of this terminal: the exit code, 128+n when signal n ended it. Ctrl-C is the command's alone. `quiet`: what
    it prints goes to stderr, where stdout belongs to a document."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(
            list(argv), env=dict(env), cwd=cwd, stdout=sys.stderr if quiet else None, check=False
        ).returncode
    except OSError:
        return NOT_THERE
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code
