"""The engine's log files: a new one for each start, the newest behind a stable link."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ftagent.paths import Paths, ensure

KEPT = 5
_LAST_WORDS = re.compile(r"(FT-E\d{4} [a-z0-9-]+): (.+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'.*")


@dataclass(frozen=True, slots=True)
class Cause:
    """What an engine wrote before it ended: one sentence, what to do about it ("" when it did not say), its code."""

    message: str
    hint: str
    code: str


def cause_in(text: str) -> Cause | None:
    """The last words in a log; None when it holds none that are meant for people."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number in range(len(lines) - 1, -1, -1):
        if words := _LAST_WORDS.fullmatch(lines[number]):
            return Cause(words[2], "".join(lines[number + 1 : number + 2]), words[1])
        if missing := _MISSING.fullmatch(lines[number]):
            hint = "Install ft with all it needs: pip install --upgrade --force-reinstall ftagent"
            return Cause(f"The Python package {missing[1].partition('.')[0]} is missing.", hint, "FT-E0520 unsupported")
    return None


def new_log(paths: Paths) -> Path:
    """A fresh log file with the stable link `engine.log`; older ones beyond `KEPT` are removed."""
    ensure(paths.state)
    folder = ensure(paths.logs)
    log = folder / f"engine-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.log"
    log.touch(0o600)
    link = folder / f".engine.log.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(log.name)
    link.replace(paths.engine_log)
    for old in sorted(folder.glob("engine-*.log"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return log


def log_tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log, or "" when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
