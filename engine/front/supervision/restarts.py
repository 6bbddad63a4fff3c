"""How often a worker that ended is started again, and after how long: a few times within a while, each later than the one before."""

from __future__ import annotations

from collections import deque

BACKOFF_S = (1.0, 5.0, 25.0)
WINDOW_S = 600.0


class Restarts:
    """Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._at: deque[float] = deque()

    def left(self, now: float) -> int:
        """How many more ends, within what is remembered of them, are answered by a new worker."""
        return len(BACKOFF_S) - sum(at >= now - WINDOW_S for at in self._at)

    def next_wait(self, now: float) -> float | None:
        """Count one more and say after how many seconds it comes; None, and nothing is counted, when there were too many."""
        while self._at and now - self._at[0] > WINDOW_S:
            self._at.popleft()
        if len(self._at) >= len(BACKOFF_S):
            return None
        self._at.append(now)
        return BACKOFF_S[len(self._at) - 1]
