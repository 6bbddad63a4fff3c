"""Ends the local engine: asked first, then told, then killed. Also one that starts, hangs, or is ending already."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ftagent.errors import EngineNotReady, FtError
from ftagent.local_engine.holder import Holder, holder
from ftagent.local_engine.running import RunningEngine, find_engine
from ftagent.paths import Paths
from ftagent.processes import start_time

STOP_GRACE_S = 40.0  # running answers may end, then the worker writes what it keeps on disk
TERM_GRACE_S = 10.0


def stop_engine(paths: Paths, grace_s: float = STOP_GRACE_S) -> bool:
    """True when an engine was stopped, False when none ran. Asks first, then TERM, then KILL of its process group."""
    engine = find_engine(paths)
    held = _of(engine) if engine is not None else holder(paths)
    if held is None:
        return False
    if engine is not None:
        with contextlib.suppress(FtError):
            engine.client.call("POST", "/v1/engine/stop", {}, timeout_s=10.0)
    if (engine is not None or held.ending) and _gone(held, paths, grace_s):
        return True
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(held, number)
        if _gone(held, paths, TERM_GRACE_S):
            return True
    raise EngineNotReady(f"The engine (pid {held.pid or 'unknown'}) does not stop.", f"Log: {paths.engine_log}")


def _of(engine: RunningEngine) -> Holder:
    return Holder(engine.pid, start_time(engine.pid or 0), False, True)


def _signal(held: Holder, number: signal.Signals) -> None:
    """To its group when it leads one (we start it that way), else to the process alone."""
    if held.pid is None or held.gone:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(held.pid) == held.pid:
            os.killpg(held.pid, number)
        else:
            os.kill(held.pid, number)


def _gone(held: Holder, paths: Paths, limit_s: float) -> bool:
    """Waits until the process has ended (or is a zombie that only its parent can collect). Where it is not known which one it
    is: until nobody has the folder and nobody answers."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if held.gone if held.pid is not None else find_engine(paths) is None and holder(paths) is None:
            return True
        time.sleep(0.05)
    return False
