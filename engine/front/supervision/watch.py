"""Is the worker stuck? Judged from two signs of life: its messages, and the CPU time that the kernel counts for it."""

from __future__ import annotations

from engine.front.supervision.child import Movement

FROZEN_S = 3.0  # with work at hand: no message and no CPU time for this long is a frozen process
BUSY_STALLS = 10  # a process that computes is given this many times `stall_s`, because one chunk may be long


class Watch:
    """Remembers when a process last moved. Times are of one monotonic clock, in seconds."""

    def __init__(self, stall_s: float, now: float) -> None:
        self._stall_s = stall_s
        self._moved = now
        self._seen: Movement | None = None

    def look(self, now: float, last_message: float, movement: Movement | None, ready: bool) -> str | None:
        """What is wrong, in words that follow "The worker"; None while nothing is.

        `last_message` is the newest message, or the newest moment without work. `movement` is None where the system
        does not tell, which counts as moving, and so does a wait for the disk.
        """
        stopped = movement is not None and movement.state in "Tt"
        if (
            movement is None
            or movement.state == "D"
            or (self._seen is not None and movement.ticks != self._seen.ticks and not stopped)
        ):
            self._moved = now
        self._seen = movement
        silent_s = now - last_message
        still_s = min(silent_s, now - self._moved)
        limit_s = FROZEN_S if ready else self._stall_s
        if still_s > limit_s:
            return "is stopped" if stopped else f"made no progress: no sign of life for {still_s:.0f} s"
        if ready and silent_s > BUSY_STALLS * self._stall_s:
            return f"made no progress for {silent_s:.0f} s, though it computes"
        return None
