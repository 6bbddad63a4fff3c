"""Rates over time, and what the next first token is expected to cost."""

from __future__ import annotations

from dataclasses import dataclass

from ftagent.dashboard.model.told import UNTOLD, Told


@dataclass(frozen=True, slots=True)
class Series:
    """Newest last; a None value is a time that nothing is known of."""

    name: str  # decode_tps, prefill_tps, hit_rate, fill_bytes_per_s
    unit: str
    points: tuple[tuple[float, float | None], ...] = ()
    last: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class ForecastPoint:
    """Time to the first token of a prompt with `new` tokens behind what is cached."""

    new: int
    p50_s: float
    p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """`source`: measured, bench (numbers are marked `~`), none."""

    told: Told = UNTOLD
    source: str = "none"
    samples: int | None = None
    p90_error: float | None = None  # of earlier forecasts
    checked: int | None = None
    curve: tuple[ForecastPoint, ...] = ()
