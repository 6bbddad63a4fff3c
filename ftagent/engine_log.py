"""The engine's log files: a new one for each start, the newest behind a stable link."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ftagent.paths import Paths, ensure

KEPT = 5


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
