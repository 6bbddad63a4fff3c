"""Saved states of prefixes."""

from __future__ import annotations

from dataclasses import dataclass

from ftagent.dashboard.model.told import UNTOLD, Told


@dataclass(frozen=True, slots=True)
class Anchor:
    """A saved state. `children` continue its prefix; `sessions` would resume from it, by name."""

    id: str
    position: int
    line: str = ""
    kind: str | None = None
    edge: str | None = None
    tier: str | None = None
    bytes: int | None = None
    wanted: bool | None = None  # an edit is expected there
    pinned: bool | None = None
    used_age_s: float | None = None
    sessions: tuple[str, ...] = ()
    children: tuple[Anchor, ...] = ()


@dataclass(frozen=True, slots=True)
class Anchors:
    """`roots` None: nothing of the kind here (an upstream, a model without states)."""

    told: Told = UNTOLD
    roots: tuple[Anchor, ...] | None = None
    why_none: str | None = None
    count: int | None = None
    bytes: int | None = None
    cap_bytes: int | None = None
    evicted: int | None = None
    disk_bytes: int | None = None
    disk_cap_bytes: int | None = None
