"""The panes of the overview: memory, rates, anchors, events, totals. Each is lines of any number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ftagent.dashboard.model import Anchor, Event, Frame, Memory, Tenant, WhatIf
from ftagent.dashboard.screens.chrome import clock
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import severity, spark, stacked
from ftagent.dashboard.widgets.cells import Line, clean, cut, fit, line, width
from ftagent.dashboard.widgets.units import UNKNOWN, age, byte_rate, percent, rate, size, tokens, whole

LETTERS = {"dense": "D", "kv": "K", "kv_free": "k", "state": "S", "experts": "E", "work": "W", "free": ".", "lent": "O"}
ROLES = {name: f"tenant{number}" for number, name in enumerate(("dense", "kv", "kv_free", "state", "experts", "work", "lent", "free"))}  # fmt: skip


def memory_bar(memory: Memory, cells: int, glyphs: Glyphs) -> Line:
    parts: list[tuple[str, float, str]] = []
    for t in memory.tenants:
        amount, letter = float(t.bytes or 0), LETTERS.get(t.key, "?") if t.key != "free" else glyphs.empty
        if t.key == "kv" and t.used is not None and t.total:
            used = amount * t.used / t.total
            parts += [(letter, used, ROLES["kv"]), ("k", amount - used, ROLES["kv_free"])]
        else:
            parts.append((letter, amount, ROLES.get(t.key, "dim")))
    return stacked(parts, cells, glyphs)


def tenant_text(tenant: Tenant) -> str:
    """Name, size, and use in its own unit."""
    text = f"{clean(tenant.name)} {size(tenant.bytes)}"
    if tenant.unit == "tokens" and tenant.total is not None:
        text += f" {tokens(tenant.used)}/{tokens(tenant.total)}"
    elif tenant.miss_rate is not None:
        text += f" hit {percent(1 - tenant.miss_rate)}"
    elif tenant.total is not None and tenant.unit != "bytes":
        text += f" {whole(tenant.used)}/{whole(tenant.total)}"
    return text + (" pinned" if tenant.pinned else "")


def memory_pane(frame: Frame, room: Room) -> list[Line]:
    memory, glyphs = frame.memory, room.glyphs
    if not memory.tenants:
        return [line(("unknown until an engine has been here", "dim"))]
    lines = [memory_bar(memory, room.width, glyphs)]
    shown = [t for t in memory.tenants if t.bytes]
    half = room.width // 2 - 1
    for first in range(0, len(shown), 2):
        parts: list[tuple[str, str]] = []
        for tenant in shown[first : first + 2]:
            letter = LETTERS.get(tenant.key, "?")
            parts += [(f"{letter} ", ROLES.get(tenant.key, "dim")), (fit(tenant_text(tenant), half - 2), "text")]
        lines.append(line(*parts))
    for number, what in enumerate(memory.what_ifs[:2]):
        lines.append(line(("what-if " if not number else "        ", "dim"), *what_if_line(what)))
    if memory.auto is not None:
        lines.append(line((f"auto {'on' if memory.auto else 'off'}   preset {memory.preset or UNKNOWN}   experts lie in {memory.bank or UNKNOWN}", "dim")))  # fmt: skip
    return lines


def what_if_line(what: WhatIf) -> Line:
    label = fit(what.label, 9)
    if what.possible is False:
        return line(f"{label} ", (clean(what.why or "not possible"), "warn"))
    parts = (
        [f"experts {tokens(what.moe_slots)}"]
        if what.moe_slots is not None
        else [f"KV {tokens(what.kv_tokens)}, possible"]
    )
    if what.miss_rate is not None:
        parts.append(f"hit {percent(1 - what.miss_rate)}")
    if what.decode_tps is not None:
        parts.append(f"{rate(what.now_decode_tps)} -> {rate(what.decode_tps)} t/s")
    return line(f"{label} {', '.join(parts)}")


def rates_pane(frame: Frame, room: Room) -> list[Line]:
    """Each series as a line; the unit and the last value at the left, the 95th percentile at the right."""
    lines = []
    names = {
        "decode_tps": "decode t/s",
        "prefill_tps": "prefill t/s",
        "hit_rate": "expert hit",
        "fill_bytes_per_s": "fills",
    }
    for series in frame.series:
        show = _shown_as(series.unit)
        last, p95 = show(series.last), f" p95 {show(series.p95)}" if series.p95 is not None else ""
        head = f"{names.get(series.name, clean(series.name)):<11} {last:>8} "
        cells = max(4, room.width - len(head) - len(p95))
        values = [value for _, value in series.points]
        high = 1.0 if series.name == "hit_rate" else None
        lines.append(line(head, (spark(values, cells, room.glyphs, high=high), "accent"), (p95, "dim")))
    experts = frame.experts
    if experts.fill_share is not None or experts.misses_per_token is not None:
        lines.append(line((f"{rate(experts.misses_per_token)} misses/token   {percent(experts.fill_share)} of them filled, rest in place", "dim")))  # fmt: skip
    return lines or [line(("no rates yet", "dim"))]


def _shown_as(unit: str) -> Callable[[float | None], str]:
    if unit == "share":
        return percent
    return byte_rate if unit == "B/s" else rate


def flat(anchors: Sequence[Anchor], depth: int = 0) -> list[tuple[int, Anchor]]:
    """Depth first, with how deep."""
    rows: list[tuple[int, Anchor]] = []
    for anchor in anchors:
        rows.append((depth, anchor))
        rows += flat(anchor.children, depth + 1)
    return rows


def anchors_pane(frame: Frame, room: Room) -> list[Line]:
    anchors = frame.anchors
    if anchors.roots is None:
        return [line((clean(anchors.why_none or "unknown"), "dim"))]
    rows = [anchor for _, anchor in flat(anchors.roots)]
    rows.sort(key=lambda a: (-len(a.sessions), a.used_age_s if a.used_age_s is not None else 1e9))
    lines = []
    for anchor in rows[: room.height]:
        who = "shared" if len(anchor.sessions) > 1 else clean(anchor.sessions[0]) if anchor.sessions else UNKNOWN
        what = clean(anchor.edge or anchor.kind or "")
        last = f"{len(anchor.sessions)} sessions" if len(anchor.sessions) > 1 else age(anchor.used_age_s)
        pinned = " pinned" if anchor.pinned else ""
        room_for = max(6, room.width - 43)
        lines.append(line((fit(who, 10) + " ", "text"), (fit(what, room_for) + " ", "dim"), f"{tokens(anchor.position):>7} {fit(anchor.tier or UNKNOWN, 5)} {last}{pinned}"))  # fmt: skip
    return lines or [line(("none kept yet", "dim"))]


def anchors_title(frame: Frame) -> str:
    anchors = frame.anchors
    if anchors.count is None:
        return "Anchors"
    of = f" of {size(anchors.cap_bytes)}" if anchors.cap_bytes else ""
    return f"Anchors {anchors.count} ({size(anchors.bytes)}{of})"


def event_line(event: Event, room: Room) -> Line:
    """The key is named where the text leaves room for it."""
    mark = {"warn": room.glyphs.warn, "error": room.glyphs.bad}.get(event.level, " ")
    role = {"warn": "warn", "error": "bad"}.get(event.level, "text")
    name = f"{fit(clean(event.name), 10)} " if event.name else ""
    explain = "  [Enter] explain" if event.level == "warn" and event.request else ""
    text, cells = clean(event.text), max(8, room.width - 12 - width(name))
    if width(text) + width(explain) > cells:
        explain = ""
    return line((f"{clock(event.at)} ", "dim"), (f"{mark} ", role), (name, "head"), (cut(text, cells), role), (explain, "dim"))  # fmt: skip


def events_pane(frame: Frame, room: Room) -> list[Line]:
    lines = [event_line(event, room) for event in reversed(frame.events[-room.height :] if room.height else ())]
    return lines or [line(("nothing has happened yet", "dim"))]


def totals_pane(frame: Frame, room: Room) -> list[Line]:
    totals = frame.totals
    cached = (
        totals.cached_tokens / totals.prompt_tokens
        if totals.cached_tokens is not None and totals.prompt_tokens
        else None
    )
    lines = [
        line(f"requests {whole(totals.requests)}"),
        line(f"prompt   {whole(totals.prompt_tokens)}   cached {whole(totals.cached_tokens)} ({percent(cached, 1)})"),
        line(f"output   {whole(totals.output_tokens)}"),
        line(f"ahead    {whole(totals.anticipated_tokens)} used, {whole(totals.wasted_tokens)} wasted"),
    ]
    if totals.cost:
        lines.append(
            line(f"elsewhere {totals.cost.currency}{totals.cost.amount:.2f}", (f"   {clean(totals.cost.price)}", "dim"))
        )
    forecast = frame.forecast
    lines.append(
        line(
            (
                f"forecast {forecast.source}, {whole(forecast.samples)} samples, p90 error {percent(forecast.p90_error)}",
                severity(None),
            )
        )
    )
    return lines
