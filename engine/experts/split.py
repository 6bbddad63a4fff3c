"""How many of a layer's misses to fill, the others being computed in place: running rates, and the split they imply.

With m misses of S bytes, a fill rate P and an in-place rate C beside running fills, both branches end together at
q* = m * P / (P + C). Over one shared memory bus P + C is the bus bandwidth H, so that q* = m * P / H. Two things move the
optimum and are measured too: the device's own time per expert, and in-place arithmetic when an expert has several rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

WEIGHT = 1 / 8  # of a new sample in a running rate
SAMPLES = 3  # whose median counts
CHANGED = 1.2  # all of the last samples beyond this factor are a change, not noise
PROBE_EVERY = 32  # choices without a fill, or without in-place work, after which one is made to keep both rates known
FIRST_PROBES = 4  # the same, while a rate is only a guess
FORGET = 1 / 64  # of a layer, or a replaced expert, in running shares
ROWS = (1.5, 3.0, 6.0)  # in-place rates are kept apart by mean rows per expert: below the first, the second, ...

Span = tuple[float, float]


class Rate:
    """A running rate in bytes per second. Single outliers are rejected: only medians of the last samples count."""

    def __init__(self, start: float) -> None:
        self.value = start
        self.samples = 0
        self._last: deque[float] = deque(maxlen=SAMPLES)

    def saw(self, size_bytes: float, seconds: float) -> None:
        """One measured transfer. Samples without a length in time or bytes are ignored."""
        if size_bytes <= 0 or seconds <= 0:
            return
        self._last.append(size_bytes / seconds)
        self.samples += 1
        if len(self._last) < SAMPLES:
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


UNKNOWN = Profile(1e9, 4e9)  # a first guess that the first steps correct


class Rates:
    """Running estimates, started from a profile. `fill`: into slots; `beside`, `alone`: in place with and without fills,
    by rows per expert; `device_s`: the device's seconds per expert."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.fill = Rate(profile.fill)
        beside = max(profile.host - profile.fill, profile.host * 1e-3)
        self.beside = [Rate(beside) for _ in range(len(ROWS) + 1)]
        self.alone = [Rate(profile.host) for _ in range(len(ROWS) + 1)]
        self._device = Rate(inf)  # experts per second

    @property
    def host(self) -> float:
        """The bandwidth both branches share with one row per expert."""
        return self.fill.value + self.beside[0].value

    @property
    def device_s(self) -> float:
        return 1 / self._device.value

    def filled(self, size_bytes: int, span: Span) -> None:
        """Fills of `size_bytes` took from span[0] to span[1]."""
        self.fill.saw(size_bytes, span[1] - span[0])

    def in_place(self, size_bytes: int, span: Span, rows: float, fills: Span | None = None) -> None:
        """Experts of `size_bytes` with `rows` rows on average were computed in place, while fills ran in `fills`."""
        seconds = span[1] - span[0]
        shared = 0.0 if fills is None else max(0.0, min(span[1], fills[1]) - max(span[0], fills[0]))
        beside, alone = self.beside[_bucket(rows)], self.alone[_bucket(rows)]
        if shared > seconds / 2:
            beside.saw(size_bytes - alone.value * (seconds - shared), shared)
        else:
            alone.saw(size_bytes - beside.value * shared, seconds - shared)

    def computed(self, experts: int, seconds: float) -> None:
        """The device needed `seconds` for `experts` that were in slots."""
        if seconds > 0:
            if self._device.value == inf:
                self._device.value = experts / seconds
            self._device.saw(experts, seconds)

    def report(self) -> dict[str, Any]:
        """Bytes per second, now and from the profile."""
        return {
            "fill_bytes_per_s": round(self.fill.value),
            "host_bytes_per_s": round(self.host),
            "profile": {"fill_bytes_per_s": round(self.profile.fill), "host_bytes_per_s": round(self.profile.host)},
        }


class Split:
    """Chooses the number of fills, layer by layer. `fixed` replaces the estimate: a share of the misses, 0..1."""

    def __init__(self, rates: Rates, expert_bytes: int, fixed: float | None = None) -> None:
        self.rates = rates
        self._bytes = expert_bytes
        self.fixed = fixed
        self._owed = 0.0  # fills by which rounding has fallen behind
        self._again = self._filled = 1.0
        self._since_fill = self._since_in_place = 0

    @property
    def share(self) -> float:
        """The share of misses that is filled: q* / m with one row per expert."""
        return self.wanted(100, 1.0, 0) / 100

    def wanted(self, misses: int, rows: float, hits: int) -> float:
        """q*: the number of fills, not rounded, at which both branches end together.

        `rows` is the mean rows per miss. The device computes `hits` experts meanwhile, and the filled ones after them.
        """
        if self.fixed is not None:
            return self.fixed * misses
        rates, size = self.rates, self._bytes
        place_s, fill_s = size / rates.beside[_bucket(rows)].value, size / rates.fill.value
        device_s = rates.device_s
        copying = (misses * place_s - device_s) / (place_s + fill_s)  # the last fill is computed after all copies
        busy = (misses * place_s - hits * device_s) / (place_s + device_s)  # when the device itself takes longer
        return max(0.0, min(copying, busy))

    def choose(self, misses: int, rows: Sequence[int] = (), hits: int = 0) -> int:
        """How many of `misses` to fill. `rows` says how many rows want each; `hits` experts are in slots already.

        Mutates the rounding error and the running share of fills.
        """
        q = 0
        if misses:
            wanted = self.wanted(misses, sum(rows) / misses if len(rows) else 1.0, hits)
            q = self._round(wanted, misses)
            if self.fixed is None:
                q = self._probe(q, misses)
            self._filled += FORGET * (q / misses - self._filled)
        return q

    def replaced(self, reused: npt.NDArray[np.bool_]) -> None:
        """Fills took the place of experts, which had been used again since they were filled, or not."""
        for again in reused.tolist():
            self._again += FORGET * (again - self._again)

    def _value(self) -> float:
        """In-place reads that one more fill saves: those until the expert would have been filled anyway.

        One is used again with probability r, as those were that fills replaced; a miss is filled with probability f.
        """
        return self._again / (1 - self._again * (1 - self._filled) + 1e-9)

    def _round(self, wanted: float, misses: int) -> int:
        """q* as a whole number. Fills up to q* cost nothing; one more lengthens the step by its overhang, and is taken while
        it saves more than that later. Where no fill is free, the average is kept at q*, or slots would never warm."""
        q = min(int(wanted + 1e-6), misses)
        if self.fixed is None:
            worth = self._value() * self.rates.fill.value / self.rates.host
            while q < misses and min(1.0, q + 1 - wanted) <= worth:
                q += 1
        if (q and self.fixed is None) or q == misses:
            return q
        self._owed += wanted - q
        if self._owed < 1:
            return q
        self._owed -= 1
        return q + 1

    def _probe(self, q: int, misses: int) -> int:
        """`q`, or one off an end where it has been for long: a rate that is never measured would stay what it was."""
        self._since_fill = 0 if q else self._since_fill + 1
        self._since_in_place = 0 if q < misses else self._since_in_place + 1
        if self._since_fill >= _patience(self.rates.fill):
            self._since_fill = 0
            return 1
        if self._since_in_place >= _patience(self.rates.beside[0]) and misses > 1:
            self._since_in_place = 0
            return misses - 1
        return q


def _patience(rate: Rate) -> int:
    return PROBE_EVERY if rate.samples >= SAMPLES else FIRST_PROBES


def _bucket(rows: float) -> int:
    return sum(rows >= limit for limit in ROWS)
