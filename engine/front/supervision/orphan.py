"""A worker that outlives its engine: when the engine is killed, a worker that hangs does not see it and keeps its memory.

Which process is the worker is kept in the runtime folder, and whoever has the folder next ends what is left.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from pathlib import Path

FILE = "worker.json"
GONE_S = 5.0
_LOG = logging.getLogger("engine.front")


def note(folder: Path, pid: int) -> None:
    """The worker of this folder's engine, which leads a process group of its own."""
    descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"pid": pid, "start_time": process_start(pid)}, file)


def clear(folder: Path) -> None:
    """The worker has ended."""
    (folder / FILE).unlink(missing_ok=True)


def end(folder: Path) -> int | None:
    """Kill the worker that is noted there, if it still is that process; its pid then. Waits until it is gone."""
    try:
        noted = json.loads((folder / FILE).read_bytes())
        pid, began = int(noted["pid"]), noted["start_time"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    clear(folder)
    if pid <= 1 or began is None or process_start(pid) != began:
        return None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while process_start(pid) == began and not _collected_by_parent(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    _LOG.warning("the worker %d of an engine that was killed still ran: ended", pid)
    return pid


def process_start(pid: int) -> int | None:
    """When a process started, in kernel ticks since boot; with the pid it names one process for ever. None: unknown."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def _collected_by_parent(pid: int) -> bool:
    """It holds nothing any more; only its parent has still to take note."""
    return _stat(pid)[:1] == ["Z"]


def _stat(pid: int) -> list[str]:
    """From the state letter on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
