"""Memory and what another split would give, from the answers of the engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftagent.dashboard.model import Memory, Move, Tenant, Told, WhatIf

Json = Mapping[str, Any]


def memory_of(memory: Json, stats: Json, told: Told, what_ifs: tuple[WhatIf, ...]) -> Memory:
    """From `ft.memory/1`; {}: nothing is known."""
    if not memory:
        return Memory()
    arena, kv, experts, states = memory["arena"], memory["kv"], memory["experts"], memory["states"]
    slab, split = arena["slab_bytes"] or 0, arena["split"]
    planned = ((stats.get("engine") or {}).get("plan") or {}).get("tenants") or {}
    tenants = [Tenant("dense", "dense", planned["dense"])] if planned.get("dense") else []
    tenants.append(
        Tenant(
            "kv",
            "KV",
            split["kv_slabs"] * slab,
            kv["used_tokens"],
            kv["tokens"],
            kv["most_tokens"],
            "tokens",
            kv["pinned"],
        )
    )
    if states is not None:
        tenants.append(
            Tenant("state", "state", split["state_slabs"] * slab, states["used"], states["total"], None, "states")
        )
    if experts is not None:
        tenants.append(
            Tenant(
                "experts", "experts", split["experts_slabs"] * slab, experts["resident"], experts["slots"],
                experts["total"], "slots", experts["pinned"], experts["miss_rate"],
            )
        )  # fmt: skip
    if planned.get("workspace"):
        tenants.append(Tenant("work", "work", planned["workspace"]))
    tenants.append(Tenant("free", "free", (arena["free_slabs"] or 0) * slab))
    if arena["lent_slabs"]:
        tenants.append(Tenant("lent", "given back", arena["lent_slabs"] * slab))
    foreign, process = memory["foreign"] or {}, memory["process"] or {}
    return Memory(
        told=told,
        state=memory["state"],
        auto=memory["auto"],
        preset=memory["preset"],
        bank=memory["bank"],
        arena_bytes=None if arena["slabs"] is None else arena["slabs"] * slab,
        slab_bytes=arena["slab_bytes"],
        tenants=tuple(tenants),
        what_ifs=what_ifs,
        moves=tuple(_move(move) for move in memory["moves"][-32:]),
        least_kv_tokens=None,
        most_kv_tokens=kv["most_tokens"],
        available_bytes=foreign.get("available_bytes"),
        process_bytes=process.get("resident_bytes"),
        peak_bytes=process.get("high_water_bytes"),
        planned_bytes=process.get("planned_bytes"),
    )


def _move(move: Json) -> Move:
    after, rates = move.get("after") or {}, move.get("measured") or {}
    text = ", ".join(f"{name.removesuffix('_slabs')} {slabs}" for name, slabs in after.items())
    return Move(
        float(move.get("at") or 0.0), str(move.get("reason")), text, rates.get("before"), rates.get("after"),
        move.get("seconds"),
    )  # fmt: skip


def what_if_of(label: str, asked: Json, answer: Json) -> WhatIf:
    """From `ft.memory-move/1`."""
    now, then = answer.get("now") or {}, answer.get("then") or {}
    return WhatIf(
        label=label,
        asked=dict(asked),
        possible=answer.get("possible"),
        why=answer.get("why"),
        kv_tokens=then.get("kv_tokens"),
        moe_slots=then.get("moe_slots"),
        window_tokens=then.get("window_tokens"),
        decode_tps=then.get("decode_tokens_per_s"),
        miss_rate=then.get("miss_rate"),
        seconds_to_apply=answer.get("seconds_to_apply"),
        now_decode_tps=now.get("decode_tokens_per_s"),
        now_miss_rate=now.get("miss_rate"),
        waits_for=answer.get("waits_for"),
    )
