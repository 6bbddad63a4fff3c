"""Who has the memory, what another split would give, and what moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ftagent.dashboard.model.told import UNTOLD, Told


@dataclass(frozen=True, slots=True)
class Tenant:
    """`key`: dense, kv, kv_free, state, experts, work, free, lent. `unit`: tokens, slots, states, bytes."""

    key: str
    name: str
    bytes: int | None = None
    used: int | None = None
    total: int | None = None
    most: int | None = None  # what it could grow to
    unit: str = "bytes"
    pinned: bool = False  # set by hand, it stays
    miss_rate: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change of memory and what it would give; nothing was changed. `label`: as shown, such as `KV +32k`."""

    label: str
    asked: Mapping[str, Any] = field(default_factory=dict)  # as act("apply") takes it
    possible: bool | None = None
    why: str | None = None
    kv_tokens: int | None = None
    moe_slots: int | None = None
    window_tokens: int | None = None
    decode_tps: float | None = None
    miss_rate: float | None = None
    seconds_to_apply: float | None = None
    now_decode_tps: float | None = None
    now_miss_rate: float | None = None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Memory that changed hands. `text`: who has how many slabs since."""

    at: float
    reason: str
    text: str
    before_tps: float | None = None
    after_tps: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    told: Told = UNTOLD
    state: str | None = None  # before `ready` the sizes are the plan's
    auto: bool | None = None  # the engine decides
    preset: str | None = None
    bank: str | None = None  # where all experts lie: ram, disk, none
    arena_bytes: int | None = None
    slab_bytes: int | None = None
    tenants: tuple[Tenant, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    moves: tuple[Move, ...] = ()  # newest last
    least_kv_tokens: int | None = None  # ends of the slider
    most_kv_tokens: int | None = None
    foreign_bytes: int | None = None  # used by other programs
    available_bytes: int | None = None
    process_bytes: int | None = None
    peak_bytes: int | None = None
    planned_bytes: int | None = None
