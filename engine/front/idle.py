"""An engine that was started on the way to something else ends itself when nobody has used it for a while.

Whoever started it says after how long, and where the leases of living agents lie: a file each, locked by the agent's
launcher for as long as it runs. An engine that a person started is never told to, and stays.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

LOOK_S = 5.0


class Idle:
    """`busy` says whether the engine has work or is on the way to be ready; `end` is called once, when the time has come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._after_s: float | None = None
        self._leases: Path | None = None
        self._since = clock()
        self._task: asyncio.Task[None] | None = None

    def touch(self) -> None:
        """Somebody uses it."""
        self._since = self._clock()

    def left_s(self) -> float | None:
        """Seconds until it ends when nothing comes; None: it stays."""
        return None if self._after_s is None else max(0.0, self._after_s - (self._clock() - self._since))

    def stop_after(
        self, after_s: float | None, leases: Path | None, busy: Callable[[], bool], end: Callable[[], None]
    ) -> None:
        """From now on; None: never. Called from the front's event loop."""
        self._after_s, self._leases = after_s, leases
        self.touch()
        if self._task is not None:
            self._task.cancel()
        self._task = None if after_s is None else asyncio.create_task(self._watch(after_s, busy, end))

    async def _watch(self, after_s: float, busy: Callable[[], bool], end: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(min(LOOK_S, after_s / 4))
            if busy() or (self._leases is not None and await asyncio.to_thread(any_held, self._leases)):
                self.touch()
            elif self.left_s() == 0.0:
                end()
                return


def any_held(folder: Path) -> bool:
    """Whether a process holds the lock of a file there. One that was left by a dead process does not count."""
    try:
        files = list(folder.glob("s-*.json"))
    except (OSError, ValueError):  # no such name can be
        return False
    for path in files:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False
