"""Which experts are used and resident, and what more slots would save."""

from __future__ import annotations

from dataclasses import dataclass

from ftagent.dashboard.model.told import UNTOLD, Told


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Share of the experts asked for that would miss with so many slots."""

    slots: int
    miss_rate: float


@dataclass(frozen=True, slots=True)
class Layer:
    """`heat`: per expert, 0..1 of the most used one of the model, lately; `resident`: per expert, whether it is in a slot."""

    layer: int
    hits: int | None = None
    misses: int | None = None
    heat: tuple[float, ...] = ()
    resident: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Experts:
    """Rates in bytes per second; the profile's were measured before the start, the others while it runs."""

    told: Told = UNTOLD
    layers: tuple[Layer, ...] = ()
    why_none: str | None = None  # no heat map or curve, and why
    slots: int | None = None
    total: int | None = None
    hits: int | None = None
    misses: int | None = None
    hit_rate: float | None = None  # of late
    misses_per_token: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    curve_steps: int | None = None
    optimum_slots: int | None = None  # what the balancer would choose now
    fill_share: float | None = None  # of the misses, filled: q*
    filled: int | None = None
    in_place: int | None = None
    fill_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    profile_fill_bytes_per_s: float | None = None
    profile_host_bytes_per_s: float | None = None
