"""How many per second, lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SPAN_S = 10.0


class Rate:
    """Counts events over the last `SPAN_S` seconds of `clock`, the time of each being that since the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.total = 0
        self._clock = clock
        self._events: deque[tuple[float, int]] = deque()

    def add(self, n: int) -> None:
        if n:
            self.total += n
            self._events.append((self._clock(), n))
            self._forget()

    def per_s(self) -> float | None:
        """From the first to the last of these events, so that what went on for a moment is told as fast as it was; None where
        fewer than two came lately."""
        self._forget()
        if len(self._events) < 2:
            return None
        seconds = self._events[-1][0] - self._events[0][0]
        return (sum(n for _, n in self._events) - self._events[0][1]) / seconds if seconds > 0 else None

    def _forget(self) -> None:
        while self._events and self._events[0][0] < self._clock() - SPAN_S:
            self._events.popleft()
