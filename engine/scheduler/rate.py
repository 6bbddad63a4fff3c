"""How many per second, lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SPAN_S = 10.0


class Rate:
    """Counts events over the last `SPAN_S` seconds of `clock`."""

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
        """None when nothing happened lately."""
        self._forget()
        return sum(n for _, n in self._events) / SPAN_S if self._events else None

    def _forget(self) -> None:
        while self._events and self._events[0][0] < self._clock() - SPAN_S:
            self._events.popleft()
