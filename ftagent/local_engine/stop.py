"""Ends the local engine: asked first, then told, then killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ftagent.errors import EngineNotReady, FtError
from ftagent.local_engine.running import RunningEngine, find_engine
from ftagent.paths import Paths
from ftagent.processes import is_alive

STOP_GRACE_S = 40.0  # running answers may end, then the worker writes what it keeps on disk
TERM_GRACE_S = 10.0


def stop_engine(paths: Paths, grace_s: float = STOP_GRACE_S) -> bool:
    """True when an engine was stopped, False when none ran. Asks first, then TERM, then KILL of its process group."""
    engine = find_engine(paths)
    if engine is None:
        return False
    with contextlib.suppress(FtError):
        engine.client.call("POST", "/v1/engine/stop", {}, timeout_s=10.0)
    if _gone(engine, paths, grace_s):
        return True
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(engine.pid, number)
        if _gone(engine, paths, TERM_GRACE_S):
            return True
    raise EngineNotReady(f"The engine (pid {engine.pid}) does not stop.", f"Log: {paths.engine_log}")


def _signal(pid: int | None, number: signal.Signals) -> None:
    """To its group when it leads one (we start it that way), else to the process alone."""
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def _gone(engine: RunningEngine, paths: Paths, limit_s: float) -> bool:
    """Waits until it neither answers nor exists (or is a zombie that only its parent can collect)."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if find_engine(paths) is None and not is_alive(engine.pid):
            return True
        time.sleep(0.05)
    return False
