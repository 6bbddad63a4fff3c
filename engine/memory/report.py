"""What `GET /v1/engine/memory` and its two siblings say: `ft.memory/1` and `ft.memory-move/1`. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.memory.plan import Plan
from engine.memory.split import Split

MAP_SCHEMA, MOVE_SCHEMA = "ft.memory/1", "ft.memory-move/1"


@dataclass(frozen=True, slots=True)
class Now:
    """One moment of an engine's memory. `pins` name the tenants set by hand; `rate(slots)` is the expected share of misses, or
    None before anything was routed; `resident` are experts in slots."""

    split: Split
    free_slabs: int
    lent_slabs: int = 0
    preset: str = "auto"
    auto: bool = False
    pins: frozenset[str] = frozenset()
    used_tokens: int = 0
    states_used: int = 0
    resident: int = 0
    rate: Callable[[int], float | None] = lambda slots: None


def start_split(plan: Plan) -> Split:
    """What each tenant is granted when the engine starts."""
    return Split(plan.kv_slabs, plan.state_slabs, plan.expert_slabs)


def kv_tokens(plan: Plan, kv_slabs: int) -> int:
    """Tokens in so many slabs; of the start split exactly those planned, although its last slab may hold some more."""
    return plan.kv_tokens if kv_slabs == plan.kv_slabs else plan.tier.kv_tokens(kv_slabs)


def moe_slots(plan: Plan, expert_slabs: int) -> int:
    """Slots in so many slabs, as `kv_tokens`; never more than there are experts."""
    if expert_slabs == plan.expert_slabs:
        return plan.moe_slots
    return min(plan.tier.experts, expert_slabs * plan.tier.slots_per_slab)


def memory_map(
    plan: Plan,
    now: Now,
    foreign: Mapping[str, Any] | None = None,
    process: Mapping[str, Any] | None = None,
    moves: Iterable[Mapping[str, Any]] = (),
    state: str = "ready",
) -> dict[str, Any]:
    """The whole map. `foreign` is `Spare.to_json()`, `process` what the worker holds, `moves` the log of what was moved."""
    tier, split = plan.tier, now.split
    slabs = plan.slabs + plan.room_slabs
    least = tier.expert_slabs(tier.slots_least) if plan.expert_slabs else 0
    tokens = kv_tokens(plan, split.kv_slabs)
    experts = None
    if plan.expert_slabs:
        slots = moe_slots(plan, split.experts_slabs)
        experts = {
            "slots": slots,
            "resident": now.resident,
            "total": tier.experts,
            "least": tier.slots_least,
            "miss_rate": now.rate(slots),
            "static_slots": plan.moe_slots,
            "static_miss_rate": now.rate(plan.moe_slots),
            "pinned": "experts" in now.pins,
        }
    return {
        "schema": MAP_SCHEMA,
        "state": state,
        "preset": now.preset,
        "auto": now.auto,
        "device": plan.device,
        "bank": plan.bank,
        "arena": {
            "slab_bytes": plan.slab_bytes,
            "slabs": slabs,
            "free_slabs": now.free_slabs,
            "lent_slabs": now.lent_slabs,
            "split": split.to_json(),
            "start_split": start_split(plan).to_json(),
        },
        "kv": {
            "tokens": tokens,
            "used_tokens": now.used_tokens,
            "most_tokens": tier.kv_tokens(slabs - split.state_slabs - least),
            "window_tokens": min(tier.window_tokens, tokens),
            "pinned": "kv" in now.pins,
        },
        "states": {"total": plan.states + plan.checkpoints, "used": now.states_used} if plan.state_slabs else None,
        "experts": experts,
        "foreign": None if foreign is None else dict(foreign),
        "process": None if process is None else dict(process),
        "moves": [dict(move) for move in moves],
    }


def side(plan: Plan, split: Split, predicted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One side of a move: a split, and what it gives where that can be told (`Prediction.to_json()`)."""
    tokens, told = kv_tokens(plan, split.kv_slabs), predicted or {}
    return {
        "split": split.to_json(),
        "kv_tokens": tokens,
        "moe_slots": moe_slots(plan, split.experts_slabs) if plan.expert_slabs else None,
        "window_tokens": min(plan.tier.window_tokens, tokens),
        "decode_tokens_per_s": told.get("decode_tokens_per_s") or None,
        "miss_rate": told.get("miss_rate"),
    }


def move_answer(
    now: Mapping[str, Any],
    then: Mapping[str, Any],
    *,
    applied: bool = False,
    why: str | None = None,
    possible: bool = True,
    seconds_to_apply: float | None = None,
    complete: bool | None = None,
    waits_for: str | None = None,
    moved: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The answer to `plan` and `apply`; `moved` is `Moved.to_json()`."""
    return {
        "schema": MOVE_SCHEMA,
        "applied": applied,
        "possible": possible,
        "why": why,
        "now": dict(now),
        "then": dict(then),
        "seconds_to_apply": seconds_to_apply,
        "complete": complete,
        "waits_for": waits_for,
        "moved": None if moved is None else dict(moved),
    }
