"""Memory, rates, forecast, anchors, requests and experts of an engine at work, made up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from ftagent.dashboard.model import (
    Anchor,
    Anchors,
    CurvePoint,
    Event,
    Experts,
    Explanation,
    Forecast,
    ForecastPoint,
    Layer,
    Memory,
    Move,
    Series,
    Session,
    Tenant,
    Told,
    Turn,
    WhatIf,
)
from ftagent.dashboard.scenarios.shapes import EXPERTS, GB, GIB, LAYERS


def what_if(label: str, asked: Mapping[str, Any]) -> WhatIf:
    """A made-up answer to any question about memory."""
    tokens = int(asked.get("kv_tokens") or 98_304)
    slots = int(asked.get("moe_slots") or max(512, 3_900 - (tokens - 98_304) // 45))
    return WhatIf(
        label, dict(asked), True, "experts give 3 slabs" if tokens > 98_304 else None, tokens, slots, min(tokens, 98_304),
        round(38 + (slots - 3_900) / 180, 1), round(miss(slots), 4), 0.3, 38.0, round(miss(3_900), 4),
    )  # fmt: skip


def miss(slots: int) -> float:
    return math.exp(-slots / 3_100)


def memory(now: float) -> Memory:
    return Memory(
        told=Told("/v1/engine/memory", now),
        state="ready",
        auto=True,
        preset="auto",
        bank="ram",
        arena_bytes=int(26.1 * GIB),
        slab_bytes=64 << 20,
        tenants=(
            Tenant("dense", "dense", int(6.1 * GIB)),
            Tenant("kv", "KV", int(5.2 * GIB), 77_400, 98_304, 262_144, "tokens"),
            Tenant("state", "state", int(0.6 * GIB), 18, 41, None, "states"),
            Tenant("experts", "experts", int(12.9 * GIB), 3_891, 3_900, LAYERS * EXPERTS, "slots", False, 0.286),
            Tenant("work", "work", int(1.4 * GIB)),
            Tenant("free", "free", int(0.4 * GIB)),
        ),
        what_ifs=(
            what_if("KV +32k", {"kv_tokens": 131_072}),
            what_if("KV -32k", {"kv_tokens": 65_536}),
        ),
        moves=(Move(now - 611, "a longer window was needed", "kv 83, state 9, experts 206", 38.4, 37.9, 0.21),),
        least_kv_tokens=4_096,
        most_kv_tokens=262_144,
        foreign_bytes=int(0.9 * GIB),
        available_bytes=int(7.8 * GIB),
        process_bytes=int(71 * GIB),
        peak_bytes=int(72.4 * GIB),
        planned_bytes=int(73 * GIB),
    )


def series(now: float) -> tuple[Series, ...]:
    times = [now - 600 + 10 * i for i in range(61)]

    def wave(middle: float, height: float, period: float) -> tuple[tuple[float, float], ...]:
        return tuple((at, round(middle + height * math.sin(i / period), 3)) for i, at in enumerate(times))

    made = (
        ("decode_tps", "tok/s", wave(38, 5, 4.0)),
        ("prefill_tps", "tok/s", wave(900, 240, 6.0)),
        ("hit_rate", "share", wave(0.71, 0.04, 7.0)),
        ("fill_bytes_per_s", "B/s", wave(21.4 * GB, GB, 5.0)),
    )
    return tuple(
        Series(name, unit, points, points[-1][1], sorted(v for _, v in points)[57]) for name, unit, points in made
    )


def forecast(now: float) -> Forecast:
    curve = tuple(
        ForecastPoint(n, round(0.3 + n / 900, 2), round(0.4 + n / 700, 2)) for n in (0, 512, 2_048, 8_192, 32_768)
    )
    return Forecast(Told("/v1/engine/forecast", now), "measured", 96, 0.14, 88, curve)


def anchors(now: float) -> Anchors:
    def anchor(id_: str, position: int, *children: Anchor, sessions: tuple[str, ...] = (), **more: Any) -> Anchor:
        facts = {"tier": "ram", "bytes": 62 << 20, "wanted": True, "pinned": False, **more}
        return Anchor(id_, position, sessions=sessions, children=children, **facts)

    claude = anchor(
        "c1", 17_204,
        anchor("c2", 57_344, anchor("c4", 61_204, kind="tip", edge="", sessions=("claude-2",)), kind="anchor",
               edge="clear_result", sessions=("claude-2",), used_age_s=120.0),
        anchor("c3", 40_810, kind="tip", edge="", sessions=("review",), used_age_s=9.0),
        kind="head", edge="system", pinned=True, sessions=("claude-2", "review"),
    )  # fmt: skip
    codex = anchor("x1", 22_100, kind="anchor", edge="tool result", sessions=("codex-1",), used_age_s=540.0)
    disk = anchor(
        "o1", 10_800, kind="tip", edge="", tier="disk", wanted=False, sessions=("oc-main",), used_age_s=2_400.0
    )
    return Anchors(
        Told("/v1/stats", now), (claude, codex, disk), None, 41, int(9.8 * GIB), 20 * GIB, 12, 3 * GIB, 50 * GIB
    )


def events(now: float, sessions: tuple[Session, ...]) -> tuple[Event, ...]:
    oc, codex = sessions[3], sessions[1]
    return (
        Event(198, now - 611, "rebalance", "memory: experts give 3 slabs to KV"),
        Event(204, now - 113, "session", "resumed, warm 22.1k", "info", codex.id, codex.name),
        Event(
            207, now - 73, "request", "prefix broke at token 1,204: 10.8k tokens computed again, 44.0 s", "warn", oc.id,
            oc.name, "req0400",
        ),
        Event(211, now - 41, "request", "61,204 tokens, 93.7 % cached", "info", sessions[0].id, "claude-2", "req0412"),
    )  # fmt: skip


def turns(now: float, sessions: tuple[Session, ...]) -> tuple[Turn, ...]:
    rows = []
    for i in range(16):
        session = sessions[i % 4]
        broke = i == 7
        prompt, new = 12_000 + 2_900 * i, 10_800 if broke else 180 + 90 * i
        ttft = round(0.3 + new / 246, 2) if broke else round(0.4 + new / 900, 2)
        rows.append(
            Turn(
                f"req{393 + i:04d}", session.id, session.name, "anthropic" if session.agent == "claude" else "chat",
                None, now - 600 + 35 * i, prompt, prompt - new, 0 if broke else 32, new - (0 if broke else 32),
                0 if broke else 96, 0, 160 + 11 * i, 0.02, 0.0, 0.1, ttft - 0.2, ttft - 0.1, 4.2, ttft,
                round(ttft * 1.1, 2), 0.026, 0.031, ttft + 4.2, 21_000, 8_400, "ram", "tool_use" if i % 4 else "stop",
                None, False, False, False, False, 4 if broke else 0, session.watchdog.limit_s,
                "message 0 block 0 (text) changed at token 1,204, not predicted" if broke else "continues",
                1_204 if broke else None, "", "", False if broke else None,
            )
        )  # fmt: skip
    return tuple(rows)


def explanation(request: str) -> Explanation:
    """The break of the `four` scenario."""
    return Explanation(
        request, "message 0 block 0 (text) changed at token 1,204, not predicted", 1_204,
        "Today's date: 2026-09-20", "Today's date: 2026-09-21",
    )  # fmt: skip


@cache
def layers() -> tuple[Layer, ...]:
    def heat(layer: int, expert: int) -> float:
        return round(math.exp(-((expert * 37 + layer * 11) % EXPERTS) / 70), 3)

    return tuple(
        Layer(
            layer, 9_000 + layer * 13, 3_500 - layer * 9, tuple(heat(layer, e) for e in range(EXPERTS)),
            tuple(heat(layer, e) > 0.25 for e in range(EXPERTS)),
        )
        for layer in range(LAYERS)
    )  # fmt: skip


def experts(now: float) -> Experts:
    slots = [64 * i for i in range(0, 161, 4)]
    return Experts(
        Told("/v1/engine/experts", now), layers(), None, 3_900, LAYERS * EXPERTS, 370_140, 132_980, 0.714, 3.4,
        tuple(CurvePoint(s, round(miss(s), 4)) for s in slots), 18_204, 4_100, 0.54, 71_800, 61_180,
        21.4 * GB, 78.2 * GB, 22.0 * GB, 80.1 * GB,
    )  # fmt: skip
