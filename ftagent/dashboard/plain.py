"""One frame as plain text: no box, no colour, one fact a line, unknown is `-`."""

from __future__ import annotations

import time

from ftagent.dashboard.model import Engine, Frame, InFlight, Session, Watchdog
from ftagent.output import table
from ftagent.text import visible

GIB = 1 << 30
MOST_SESSIONS, MOST_EVENTS = 20, 8


def text_of(frame: Frame) -> str:
    """Ends without a newline."""
    parts = [_engine(frame.engine, frame.now)]
    parts += [f"alert     {visible(alert.text)}" for alert in frame.alerts]
    if frame.sessions:
        parts += ["", _sessions(frame.sessions)]
    for one in frame.in_flight:
        parts += ["", _in_flight(one)]
    if frame.memory.tenants:
        parts += ["", _memory(frame)]
    if frame.series:
        rates = [f"{s.name.removesuffix('_tps')} {_number(s.last, s.unit)}" for s in frame.series]
        parts += ["", "rates     " + "  ".join(rates)]
    totals = frame.totals
    if totals.requests is not None:
        cost = "" if totals.cost is None else f"  at your reference price {totals.cost.amount:,.2f}"
        parts.append(
            f"totals    requests {totals.requests:,}  prompt {_count(totals.prompt_tokens)}  cached "
            f"{_count(totals.cached_tokens)}  output {_count(totals.output_tokens)}{cost}"
        )
    if frame.events:
        parts += ["", *(_event(e.at, e.level, e.name, e.text) for e in frame.events[-MOST_EVENTS:])]
    return "\n".join(parts)


def _engine(engine: Engine, now: float) -> str:
    words = ["engine   ", engine.state]
    if engine.state == "stopped":
        if engine.stopped_at is not None:
            words.append(f"{_age(now - engine.stopped_at)} ago")
        words.append(f"last {engine.model}" if engine.model else "")
        return " ".join(word for word in words if word)
    if engine.phase and engine.phase != engine.state:
        words.append(engine.phase)
    if engine.progress is not None and engine.state not in ("ready", "crashed"):
        words.append(f"{engine.progress:.0%}")
    if engine.eta_s is not None and engine.state != "ready":
        words.append(f"about {engine.eta_s:.0f} s left")
    words += [
        str(engine.model or "-"),
        f"port {engine.port or '-'}",
        f"up {_age(engine.uptime_s)}",
        f"window {_count(engine.window_tokens)}",
        f"running {_count(engine.running)}",
        f"waiting {_count(engine.waiting)}",
    ]
    for fill in engine.memory:
        words.append(f"{fill.name} {_gib(fill.used_bytes)}/{_gib(fill.total_bytes)} GiB")
    if engine.paused:
        words.append("admission paused")
    if engine.message:
        words.append(f"\n          {visible(engine.message)} {visible(engine.hint or '')}".rstrip())
    return " ".join(words)


def _sessions(sessions: tuple[Session, ...]) -> str:
    rows = [["NAME", "AGENT", "STATUS", "CONTEXT", "TTFT last", "p95", "WATCHDOG", "WARM", "COST"]]
    for one in sessions[:MOST_SESSIONS]:
        agent = " ".join(word for word in (one.agent, one.agent_version) if word)
        rows.append(
            [
                visible(one.name or one.id), visible(agent) or "-", one.status,
                f"{_count(one.context_tokens)}/{_count(one.window_tokens)}", _s(one.ttft_last_s), _s(one.ttft_p95_s),
                _dog(one.watchdog), one.warm_tier or "-", "-" if one.cost is None else f"{one.cost.amount:.2f}",
            ]
        )  # fmt: skip
    more = len(sessions) - MOST_SESSIONS
    return table(rows) + (f"\nand {more} more: ft ls -a" if more > 0 else "")


def _dog(dog: Watchdog) -> str:
    if dog.limit_s is None:
        return "-"
    if dog.silence_s is None:
        return f"{dog.limit_s:.0f} s"
    return f"silent {dog.silence_s:.0f} of {dog.limit_s:.0f} s, {dog.level}"


def _in_flight(one: InFlight) -> str:
    who = visible(one.name or one.request)
    progress = "-" if one.progress is None else f"{one.progress:.0%}"
    return (
        f"turn      {who} {one.stage} {progress} after {_s(one.elapsed_s)}, first token in {_s(one.eta_s)}\n"
        f"          prompt {_count(one.prompt_tokens)} = cached {_count(one.cached_tokens)} + replayed "
        f"{_count(one.replayed_tokens)} + new {_count(one.new_tokens)}; anticipated {_count(one.anticipated_tokens)}, "
        f"output {_count(one.output_tokens)}, keepalives {_count(one.heartbeats)}\n"
        f"          watchdog {_dog(one.watchdog)}"
    )


def _memory(frame: Frame) -> str:
    rows = [["MEMORY", "GiB", "USED", "OF", "UNIT"]]
    for tenant in frame.memory.tenants:
        rows.append([tenant.name, _gib(tenant.bytes), _count(tenant.used), _count(tenant.total), tenant.unit])
    lines = [table(rows)]
    for one in frame.memory.what_ifs:
        then = f"decode {_number(one.now_decode_tps, 'tok/s')} -> {_number(one.decode_tps, 'tok/s')}"
        told = f"{then}, expert slots {_count(one.moe_slots)}" if one.possible else f"no: {one.why}"
        lines.append(f"what if   {one.label}: {told}")
    return "\n".join(lines)


def _event(at: float, level: str, name: str, text: str) -> str:
    mark = {"warn": "! ", "error": "!!"}.get(level, "  ")
    return f"{time.strftime('%H:%M:%S', time.localtime(at))} {mark} {visible(name) or '-'}  {visible(text)}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{value / GIB:.2f}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value / 1e9:.2f} GB/s" if unit == "B/s" else f"{value:.1f} {unit}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours}h{minutes % 60:02d}m" if hours else f"{minutes}m" if minutes else f"{int(seconds)}s"
