"""Time, and waiting for it: the machine's own, or a modelled one that only moves when somebody waits."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time

_PR_SET_TIMERSLACK = 29
_thread = threading.local()


class Clock:
    """The machine's time."""

    def now(self) -> float:
        """Seconds, from time.perf_counter()."""
        return time.perf_counter()

    def sleep_until(self, deadline: float) -> None:
        """Return when it is `deadline`; late by a few microseconds, never early."""
        if not getattr(_thread, "precise", False):
            _thread.precise = True
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of this thread's timers; 50 us by default
        while (left := deadline - time.perf_counter()) > 0:
            time.sleep(left)


class ModelClock(Clock):
    """Starts at 0 and jumps to whatever is waited for: emulated time without the machine's own, for one thread."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds since the start of the model."""
        return self._now

    def sleep_until(self, deadline: float) -> None:
        """Make it `deadline`, if it is not later."""
        self._now = max(self._now, deadline)
