"""The scenarios of `--mock`. The numbers are made up but fit together: a 35B model on a 32 GB GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ftagent.dashboard.model import (
    Anchor,
    Anchors,
    Check,
    Cost,
    Crash,
    CurvePoint,
    Engine,
    Event,
    Experts,
    Explanation,
    Fill,
    Flag,
    Forecast,
    ForecastPoint,
    Frame,
    InFlight,
    Layer,
    LogLine,
    Memory,
    Move,
    Phase,
    Series,
    Session,
    Tenant,
    Told,
    Totals,
    Turn,
    Version,
    WhatIf,
)
from ftagent.dashboard.watchdog import alerts, judge

BEGAN = 1_790_000_000.0  # a fixed day, so that pictures stay as they are
MODEL = "qwen3.6-35b-a3b"
GB, GIB = 1_000_000_000, 1 << 30
_LAYERS, _EXPERTS = 40, 256
_PRICE = "$3 / $0.30 / $15 per million prompt / cached / output tokens"


def no_engine(seconds: float) -> Frame:
    """Nothing runs, something ran three minutes ago."""
    now = BEGAN + seconds
    engine = Engine(Told("last known", now - 187), "stopped", now - 187, MODEL, 1919, version="0.1.0")
    ended = (
        _session(
            "claude-2", "claude", "2.1.332", "ended", now, context=88_100, last=2.0, p95=3.1, ago=3600, warm="disk"
        ),
        _session("codex-1", "codex", "0.171.0", "ended", now, context=22_800, last=1.2, p95=2.0, ago=7200, warm="gone"),
    )
    return Frame(now, project="shop", engine=engine, sessions=ended, checks=_checks(engine=False))


def loading(seconds: float) -> Frame:
    """62 % of the weights are read."""
    now, progress = BEGAN + seconds, min(0.99, 0.62 + seconds / 30)
    engine = replace(
        _engine(now),
        state="loading",
        phase="weights",
        progress=progress,
        eta_s=round((1 - progress) * 30, 1),
        uptime_s=19.0 + seconds,
        running=0,
        waiting=1,
        phases=(Phase("starting", "start", now - 19, 2.0), Phase("loading", "weights", now - 17)),
    )
    waiting = _session("claude-2", "claude", "2.1.332", "running", now, last=None, p95=None, ago=5)
    queued = InFlight(
        "req0001", waiting.id, "claude-2", "claude", stage="queue", started_at=now - 5, elapsed_s=5.0 + seconds,
        prompt_tokens=17_204, heartbeats=1, beat_age_s=1.0, watchdog=judge(1800, "session", 1.0),
    )  # fmt: skip
    return Frame(now, project="shop", engine=engine, sessions=(waiting,), in_flight=(queued,), logs=_logs())


def idle(seconds: float) -> Frame:
    """All agents wait for their person."""
    made = _busy(seconds)
    now = made.now
    sessions = (
        _session(
            "claude-2", "claude", "2.1.332", "waiting", now, context=61_204, last=3.1, p95=4.4, ago=240, warm="ram"
        ),
        _session("codex-1", "codex", "0.171.0", "idle", now, context=22_800, last=1.2, p95=2.0, ago=900, warm="ram"),
    )
    engine = replace(made.engine, running=0, waiting=0, stops_in_s=412.0)
    quiet = tuple(replace(s, last=None, points=tuple((at, None) for at, _ in s.points)) for s in made.series)
    return replace(made, engine=engine, sessions=sessions, in_flight=(), series=quiet, alerts=())


def near_watchdog(seconds: float) -> Frame:
    """A long prefill whose agent has 41 of 300 seconds left."""
    made = _busy(seconds)
    silence, left = 259.0 + seconds, max(1.0, 63.0 - seconds)
    dog = judge(300, "session", silence, left, left * 1.2)
    slow = replace(
        made.in_flight[0],
        prompt_tokens=61_204, cached_tokens=1_204, replayed_tokens=0, new_tokens=60_000, anticipated_tokens=0,
        done_tokens=47_616, todo_tokens=60_000, progress=0.7936, eta_s=left, elapsed_s=silence,
        heartbeats=0, beat_age_s=None, predicted_ttft_s=318.0, watchdog=dog,
    )  # fmt: skip
    sessions = (replace(made.sessions[0], watchdog=dog), *made.sessions[1:])
    return replace(made, sessions=sessions, in_flight=(slow,), alerts=tuple(alerts((slow,))))


def four(seconds: float) -> Frame:
    """Four agents at work: one computes its prompt, two decode, one waits."""
    return _busy(seconds)


def crash(seconds: float) -> Frame:
    """The worker was killed for memory and stays down."""
    made = _busy(seconds)
    now = made.now
    why = "The kernel ended the worker, because memory ran out."
    crashes = (
        Crash(now - 95, "FT-E0510 worker-gone", why, 1.0),
        Crash(now - 60, "FT-E0510 worker-gone", why, 5.0),
        Crash(now - 12, "FT-E0511 out-of-memory", why),
    )
    engine = replace(
        made.engine, state="crashed", code=crashes[-1].code, message=why,
        hint="ft engine restart --kv 64k", worker_pid=None, restarts=2, restarts_left=0, crashes=crashes, running=0,
    )  # fmt: skip
    sessions = tuple(replace(s, status="running", watchdog=judge(s.watchdog.limit_s, "session")) for s in made.sessions)
    gone = Event(212, now - 12, "worker_gone", why, "error")
    return replace(
        made, engine=engine, sessions=sessions, in_flight=(), events=(*made.events, gone), alerts=(), series=(),
        logs=(*_logs(), LogLine(why, "error", "12:03:29")),
    )  # fmt: skip


def fifty(seconds: float) -> Frame:
    """More sessions than any screen has lines."""
    made = _busy(seconds)
    agents = ("claude", "codex", "opencode", "hermes", "qwen")
    more = tuple(
        _session(
            f"{agents[i % 5]}-{i}", agents[i % 5], "1.0", ("waiting", "idle", "ended", "detached")[i % 4], made.now,
            context=1_000 + 1_731 * i, last=0.4 + i % 7, p95=1.0 + i % 9, ago=60 * i, warm=("ram", "disk", "gone")[i % 3],
            project="shop" if i % 3 else "blog",
        )
        for i in range(4, 50)
    )  # fmt: skip
    return replace(made, sessions=(*made.sessions, *more))


def wide(seconds: float) -> Frame:
    """Names of wide, combining and joined characters."""
    made = _busy(seconds)
    names = ("日本語の長いセッション名です", "한국어-세션", "café-e\u0301", "👩‍💻-dev")
    sessions = tuple(replace(s, name=n, branch="功能/購物車") for s, n in zip(made.sessions, names, strict=True))
    in_flight = tuple(replace(f, name=next(s.name for s in sessions if s.id == f.session)) for f in made.in_flight)
    return replace(made, project="商店", sessions=sessions, in_flight=in_flight)


def upstream(seconds: float) -> Frame:
    """Another engine's server computes: it tells neither of memory nor of anchors nor of experts."""
    made = _busy(seconds)
    reasons = (
        ("anchors", "the server keeps no states"),
        ("memory", "its memory is its own"),
        ("scripts", "it samples"),
    )
    engine = replace(
        made.engine, model="qwen3-30b-a3b", device="llama-server http://127.0.0.1:8080", memory=(), worker_pid=None,
        cannot=reasons, flags=(), kv_tokens=None,
    )  # fmt: skip
    in_flight = tuple(
        replace(
            f, replayed_tokens=None, anticipated_tokens=None, done_tokens=None, progress=None, eta_s=None, tier=None
        )
        for f in made.in_flight
    )
    none = "the server keeps no states"
    return replace(
        made, engine=engine, in_flight=in_flight, memory=Memory(), anchors=Anchors(why_none=none),
        experts=Experts(why_none="its memory is its own"), offers=("cancel", "stop", "beat", "pause", "keep"),
        sessions=tuple(replace(s, warm_tier=None, warm_tokens=None) for s in made.sessions),
    )  # fmt: skip


def what_if(label: str, asked: Mapping[str, Any]) -> WhatIf:
    """A made-up answer to any question about memory."""
    tokens = int(asked.get("kv_tokens") or 98_304)
    slots = int(asked.get("moe_slots") or max(512, 3_900 - (tokens - 98_304) // 45))
    return WhatIf(
        label, dict(asked), True, "experts give 3 slabs" if tokens > 98_304 else None, tokens, slots, min(tokens, 98_304),
        round(38 + (slots - 3_900) / 180, 1), round(_miss(slots), 4), 0.3, 38.0, round(_miss(3_900), 4),
    )  # fmt: skip


def explanation(request: str) -> Explanation:
    """The break of the `four` scenario."""
    return Explanation(
        request, "message 0 block 0 (text) changed at token 1,204, not predicted", 1_204,
        "Today's date: 2026-09-20", "Today's date: 2026-09-21",
    )  # fmt: skip


def _busy(seconds: float) -> Frame:
    now = BEGAN + seconds
    done = min(3_860, 2_910 + int(seconds * 73))
    left = (3_860 - done) / 73
    dog = judge(1800, "session", min(11.0, 4 + seconds), left, left * 1.3)
    sessions = (
        _session("claude-2", "claude", "2.1.332", "prefill", now, context=61_204, last=2.9, p95=3.1, ago=0, warm="gpu", cost=1.92),
        _session("codex-1", "codex", "0.171.0", "thinking", now, context=22_800, last=1.2, p95=2.0, ago=0, warm="gpu", cost=0.41),
        _session("review", "claude", "2.1.332", "thinking", now, context=41_020, last=1.9, p95=2.8, ago=0, warm="gpu", cost=3.77),
        _session("oc-main", "opencode", "1.18.2", "waiting", now, context=12_000, last=44.0, p95=44.0, ago=240, warm="ram", cost=0.10),
    )  # fmt: skip
    sessions = (replace(sessions[0], watchdog=dog, waits_for_person=False), *sessions[1:])
    in_flight = (
        InFlight(
            "req0412", sessions[0].id, "claude-2", "claude", None, "prefill", now - 41 - seconds, 41.0 + seconds,
            61_204, 57_344, 512, 3_348, 4_096, done, 3_860, round(done / 3_860, 4), round(left, 1), 73.0, None, None,
            0.0, 0.4, "ram", None, 52.0, 3, min(11.0, 4 + seconds), False, dog,
        ),
        _decoding("req0409", sessions[1], now, seconds, 22_400, 38.0),
        _decoding("req0410", sessions[2], now, seconds, 40_810, 37.1),
    )  # fmt: skip
    return Frame(
        now=now,
        project="shop",
        engine=_engine(now),
        sessions=sessions,
        in_flight=in_flight,
        memory=_memory(now),
        series=_series(now),
        forecast=_forecast(now),
        anchors=_anchors(now),
        events=_events(now, sessions),
        turns=_turns(now, sessions),
        experts=_experts(now),
        logs=_logs(),
        checks=_checks(engine=True),
        totals=Totals(412, 9_204_116, 8_790_233, 184_022, 611_204, 40_118, Cost(32.1, "$", _PRICE)),
        offers=("cancel", "apply", "stop", "beat", "pause", "keep"),
    )


def _engine(now: float) -> Engine:
    return Engine(
        told=Told("/v1/stats", now),
        state="ready",
        model=MODEL,
        port=1919,
        pid=4_120,
        worker_pid=4_131,
        version="0.1.0",
        uptime_s=8_040.0,
        phase="ready",
        restarts=0,
        restarts_left=3,
        scripted=False,
        paused=False,
        window_tokens=98_304,
        kv_tokens=98_304,
        running=3,
        waiting=0,
        device="RTX 5090",
        temperature_c=61.0,
        power_w=310.0,
        memory=(Fill("RAM", 74 * GIB, 96 * GIB), Fill("RTX 5090", 24 * GIB, 32 * GIB)),
        versions=(Version("ft", "0.1.0"), Version("engine", "0.1.0"), Version("python", "3.11.9")),
        flags=(
            Flag("model", MODEL, "project"),
            Flag("kv_tokens", "98,304", "user"),
            Flag("moe_backend", "hybrid", "chosen"),
            Flag("max_running", "8", "default"),
        ),
        phases=(
            Phase("starting", "start", now - 8_040, 2.1),
            Phase("loading", "weights", now - 8_038, 24.0),
            Phase("warming", "warm-up", now - 8_014, 3.2),
            Phase("ready", "ready", now - 8_011),
        ),
    )


def _session(
    name: str,
    agent: str,
    version: str,
    status: str,
    now: float,
    *,
    context: int | None = None,
    last: float | None = None,
    p95: float | None = None,
    ago: float = 0.0,
    warm: str | None = None,
    cost: float | None = None,
    project: str = "shop",
) -> Session:
    limit = {"claude": 1800.0, "codex": 3600.0, "hermes": 1800.0}.get(agent, 300.0)
    letters = "".join("abcdefghijklmnopqrstuvwxyz234567"[(ord(c) * 7 + i) % 32] for i, c in enumerate((name * 10)[:10]))
    over = status in ("ended", "lost")
    return Session(
        id=f"s-{letters}",
        told=Told("session record" if over else "/v1/sessions", now),
        name=name,
        agent=agent,
        agent_version=version,
        status=status,
        since_s=ago,
        project=project,
        here=project == "shop",
        branch="main",
        model=MODEL,
        context_tokens=context,
        window_tokens=98_304,
        ttft_last_s=last,
        ttft_p50_s=last,
        ttft_p95_s=p95,
        ttft_max_s=p95,
        watchdog=judge(limit, "session"),
        warm_tier=warm,
        warm_tokens=context if warm not in (None, "gone") else 0,
        resume_s=2.0 if over and warm == "disk" else None,
        cold_s=210.0 if over else None,
        requests=14 if context else 0,
        turns=12 if context else 0,
        prompt_tokens=(context or 0) * 9,
        cached_tokens=(context or 0) * 8,
        output_tokens=(context or 0) // 20,
        retries=0,
        errors=0,
        cost=None if cost is None else Cost(cost, "$", _PRICE),
        waits_for_person=status == "waiting",
        diff_stat="3 files changed, 41 insertions(+), 7 deletions(-)" if project == "shop" else None,
        harness_ids=((f"01a2-{letters}", "observed"),),
    )


def _decoding(request: str, session: Session, now: float, seconds: float, prompt: int, rate: float) -> InFlight:
    return InFlight(
        request=request,
        session=session.id,
        name=session.name,
        agent=session.agent,
        stage="decode",
        started_at=now - 9 - seconds,
        elapsed_s=9.0 + seconds,
        prompt_tokens=prompt,
        cached_tokens=prompt - 210,
        replayed_tokens=32,
        new_tokens=178,
        anticipated_tokens=120,
        done_tokens=210,
        todo_tokens=210,
        progress=1.0,
        decode_tps=rate,
        output_tokens=280 + int(rate * seconds),
        queue_s=0.0,
        restore_s=0.0,
        tier="ram",
        ttft_s=1.6,
        predicted_ttft_s=1.5,
        heartbeats=0,
        retried=False,
        watchdog=session.watchdog,
    )


def _memory(now: float) -> Memory:
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
            Tenant("experts", "experts", int(12.9 * GIB), 3_891, 3_900, _LAYERS * _EXPERTS, "slots", False, 0.286),
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


def _miss(slots: int) -> float:
    return math.exp(-slots / 3_100)


def _series(now: float) -> tuple[Series, ...]:
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


def _forecast(now: float) -> Forecast:
    curve = tuple(
        ForecastPoint(n, round(0.3 + n / 900, 2), round(0.4 + n / 700, 2)) for n in (0, 512, 2_048, 8_192, 32_768)
    )
    return Forecast(Told("/v1/engine/forecast", now), "measured", 96, 0.14, 88, curve)


def _anchors(now: float) -> Anchors:
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


def _events(now: float, sessions: tuple[Session, ...]) -> tuple[Event, ...]:
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


def _turns(now: float, sessions: tuple[Session, ...]) -> tuple[Turn, ...]:
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


@cache
def _layers() -> tuple[Layer, ...]:
    def heat(layer: int, expert: int) -> float:
        return round(math.exp(-((expert * 37 + layer * 11) % _EXPERTS) / 70), 3)

    return tuple(
        Layer(
            layer, 9_000 + layer * 13, 3_500 - layer * 9, tuple(heat(layer, e) for e in range(_EXPERTS)),
            tuple(heat(layer, e) > 0.25 for e in range(_EXPERTS)),
        )
        for layer in range(_LAYERS)
    )  # fmt: skip


def _experts(now: float) -> Experts:
    slots = [64 * i for i in range(0, 161, 4)]
    return Experts(
        Told("/v1/engine/experts", now), _layers(), None, 3_900, _LAYERS * _EXPERTS, 370_140, 132_980, 0.714, 3.4,
        tuple(CurvePoint(s, round(_miss(s), 4)) for s in slots), 18_204, 4_100, 0.54, 71_800, 61_180,
        21.4 * GB, 78.2 * GB, 22.0 * GB, 80.1 * GB,
    )  # fmt: skip


def _logs() -> tuple[LogLine, ...]:
    return (
        LogLine("engine.front: serving qwen3.6-35b-a3b on port 1919", "info", "09:49:02"),
        LogLine("engine.worker: weights: 19.2 GB in 24.0 s", "info", "09:49:28"),
        LogLine("engine.front: prefix of s-… broke at token 1,204", "warning", "12:02:58"),
    )


def _checks(engine: bool) -> tuple[Check, ...]:
    running = Check("engine", "OK", "ready, window 98,304 tokens") if engine else Check("engine", "OK", "stopped")
    return (
        Check("settings", "OK", "defaults"),
        running,
        Check("pinned memory", "WARN", "8 MiB (ulimit -l)", "ulimit -l unlimited"),
        Check("agent codex", "SKIP", "not installed", "npm install -g @openai/codex"),
    )
