"""Waiting until a point in time, to the microsecond."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time

_PR_SET_TIMERSLACK = 29
_thread = threading.local()


def sleep_until(deadline: float) -> None:
    """Sleep until time.perf_counter() is `deadline`; late by a few microseconds, never early."""
    if not getattr(_thread, "precise", False):
        _thread.precise = True
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of this thread's timers; 50 us by default
    while (left := deadline - time.perf_counter()) > 0:
        time.sleep(left)
