"""What a decode step costs without misses, and what each miss adds: learnt from the steps themselves."""

from __future__ import annotations

from collections import deque

WEIGHT = 1 / 128  # of a step in the running moments
SETTLING = 32  # steps that only tell what is usual, and as many that weigh the same
TRUST = 0.05  # misses must vary by this share of their mean before their slope counts as much as what was expected
OUTLIER = 4.0  # a step so many times slower than usual counts as this slow
LEAST_SHARE = 0.05  # of a step, for what is not misses


class StepCost:
    """A line through (misses, seconds) of steps that only decode, drawn towards `miss_s`, what a miss should cost.

    `misses` is their running mean.
    """

    def __init__(self, miss_s: float) -> None:
        self.expected_miss_s = miss_s
        self.misses = self._seconds = 0.0
        self._squares = self._products = 0.0  # central moments
        self._steps = 0
        self._last: deque[float] = deque(maxlen=SETTLING)  # whose median is usual

    @property
    def known(self) -> bool:
        return self._steps >= 2 * SETTLING

    def note(self, seconds: float, misses: int) -> None:
        """One step took `seconds` and missed `misses` experts."""
        self._steps += 1
        self._last.append(seconds)
        if self._steps == SETTLING:  # the first steps may have been anything
            self.misses = self._seconds = self._squares = self._products = 0.0
        seconds = min(seconds, OUTLIER * sorted(self._last)[len(self._last) // 2])
        seen = self._steps if self._steps < SETTLING else self._steps - SETTLING + 1
        weight = max(WEIGHT, 1 / seen)
        by_misses, by_seconds = misses - self.misses, seconds - self._seconds
        self.misses += weight * by_misses
        self._seconds += weight * by_seconds
        keep = 1 - weight
        self._squares = keep * (self._squares + weight * by_misses * by_misses)
        self._products = keep * (self._products + weight * by_misses * by_seconds)

    @property
    def miss_s(self) -> float:
        """Seconds that a miss adds."""
        prior = (TRUST * self.misses) ** 2
        if self._squares + prior == 0:
            return self.expected_miss_s
        slope = (self._products + prior * self.expected_miss_s) / (self._squares + prior)
        most = (1 - LEAST_SHARE) * self._seconds / self.misses if self.misses else slope
        return max(0.0, min(slope, most))

    @property
    def step_s(self) -> float:
        """Seconds of a step that misses nothing."""
        return self._seconds - self.miss_s * self.misses
