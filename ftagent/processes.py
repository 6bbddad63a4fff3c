"""Whether a process exists, and which one it is: a pid alone may have been given to another."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def start_time(pid: int) -> str | None:
    """Clock ticks since boot at which the process started; None without /proc or without the process."""
    fields = _stat_fields(pid)
    return fields[19] if len(fields) > 19 else None


def is_alive(pid: int | None) -> bool:
    """A zombie that only its parent can collect counts as gone."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    fields = _stat_fields(pid)
    return not fields or fields[0] != "Z"


def _stat_fields(pid: int) -> list[str]:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return []
