"""How many of a layer's misses to fill, the others being computed in place: running rates, and the split they imply.

With m misses of S bytes, a fill rate P and an in-place rate C beside running fills, both branches end together at
q* = m * P / (P + C). Over one shared memory bus P + C is the bus bandwidth H, so that q* = m * P / H.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf, isfinite

WEIGHT = 1 / 8  # of a new sample in a running rate
CHANGED = 1.2  # three samples in a row beyond this factor are a change, not noise
PROBE_EVERY = 32  # choices without a fill, or without in-place work, after which one is made to keep both rates known
SLOWER = 1.02  # rounding up may lengthen a step by this much


class Rate:
    """A running rate in bytes per second. Single outliers are rejected: only medians of three samples count."""

    def __init__(self, start: float) -> None:
        self.value = start
        self.samples = 0
        self._last: deque[float] = deque(maxlen=3)

    def saw(self, size_bytes: float, seconds: float) -> None:
        """One measured transfer. Samples without a length in time or bytes are ignored."""
        if size_bytes <= 0 or seconds <= 0:
            return
        sample = size_bytes / seconds
        self._last.append(sample)
        self.samples += 1
        if len(self._last) < 3:
            return
        low, median, high = sorted(self._last)
        if low > self.value * CHANGED or high < self.value / CHANGED:
            self.value = median
        else:
            self.value += WEIGHT * (median - self.value)


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured bandwidths, bytes per second: filling slots, and computing in place with no fill running."""

    fill: float
    host: float


class Rates:
    """Running estimates, started from a profile. `fill`: into slots; `beside`, `alone`: in place with and without fills."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.fill = Rate(profile.fill)
        self.beside = Rate(max(profile.host - profile.fill, profile.host * 1e-3))
        self.alone = Rate(profile.host)

    @property
    def host(self) -> float:
        """The bandwidth both branches share."""
        return self.fill.value + self.beside.value

    def saw(self, filled: int, fill_span: tuple[float, float], in_place: int, span: tuple[float, float]) -> None:
        """One layer of one step: bytes and (start, end) times of both branches; a branch of 0 bytes did not run."""
        if filled:
            self.fill.saw(filled, fill_span[1] - fill_span[0])
        if not in_place:
            return
        seconds = span[1] - span[0]
        shared = max(0.0, min(span[1], fill_span[1]) - max(span[0], fill_span[0])) if filled else 0.0
        if shared > seconds / 2:
            self.beside.saw(in_place - self.alone.value * (seconds - shared), shared)
        else:
            self.alone.saw(in_place - self.beside.value * shared, seconds - shared)


class Split:
    """Chooses the number of fills, layer by layer. `fixed` replaces the estimate: a share of the misses, 0..1."""

    def __init__(self, rates: Rates, fixed: float | None = None) -> None:
        self.rates = rates
        self._fixed = fixed
        self._owed = 0.0  # fills by which rounding has fallen behind
        self._since_fill = self._since_in_place = 0

    @property
    def share(self) -> float:
        """q* / m now."""
        if self._fixed is not None:
            return self._fixed
        host = self.rates.host
        return min(1.0, self.rates.fill.value / host) if isfinite(host) and host > 0 else 1.0

    def choose(self, misses: int) -> int:
        """How many of `misses` to fill; 0 when there are none. Mutates the rounding error."""
        if not misses:
            return 0
        q = self._round(self.share * misses, misses)
        if self._fixed is None:
            q = self._probe(q, misses)
        return q

    def _round(self, wanted: float, misses: int) -> int:
        low = min(int(wanted), misses)
        if low == misses or wanted == low:
            return low
        self._owed += wanted - low
        if self._owed < 1:
            return low
        self._owed -= 1
        # Fills up to q* cost nothing, one more lengthens the step by its overhang. With no fill at all slots never warm.
        return low + 1 if low == 0 or self._fixed is not None or (low + 1) / wanted <= SLOWER else low

    def _probe(self, q: int, misses: int) -> int:
        self._since_fill = 0 if q else self._since_fill + 1
        self._since_in_place = 0 if q < misses else self._since_in_place + 1
        if self._since_fill >= PROBE_EVERY:
            self._since_fill = 0
            return 1
        if self._since_in_place >= PROBE_EVERY and misses > 1:
            self._since_in_place = 0
            return misses - 1
        return q


UNKNOWN = Profile(inf, inf)  # nothing was measured: everything is filled
