"""Lines of the memory screen: who has what, the machine's memories, the slider, predictions, what moved."""

from __future__ import annotations

from ftagent.dashboard.model import Frame, Memory, WhatIf
from ftagent.dashboard.screens.chrome import clock
from ftagent.dashboard.screens.panes import LETTERS, ROLES
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import bar, severity
from ftagent.dashboard.widgets.cells import Line, Span, clean, fit, line, width
from ftagent.dashboard.widgets.tables import Cell, Column, table
from ftagent.dashboard.widgets.units import UNKNOWN, of_size, percent, rate, seconds, size, tokens, whole

SMALL, LARGE = 1_024, 8_192
COLUMNS = (
    Column("", 2, 2, 0),
    Column("TENANT", 8, 12, 0),
    Column("SIZE", 8, 9, 0, ">"),
    Column("USED", 8, 10, 1, ">"),
    Column("OF", 8, 10, 1, ">"),
    Column("COULD BE", 8, 10, 3, ">"),
    Column("UNIT", 6, 8, 2),
    Column("HIT", 4, 5, 4, ">"),
    Column("", 6, 12, 5),
)


def tenants(memory: Memory, cells: int) -> list[Line]:
    rows: list[list[Cell]] = []
    for t in memory.tenants:
        counted = t.unit != "bytes"
        rows.append([
            line((LETTERS.get(t.key, "?"), ROLES.get(t.key, "dim"))), clean(t.name), size(t.bytes), whole(t.used) if counted else "",
            whole(t.total) if counted else "", whole(t.most) if t.most is not None else "", t.unit if counted else "",
            percent(1 - t.miss_rate) if t.miss_rate is not None else "", "set by hand" if t.pinned else "",
        ])  # fmt: skip
    return table(COLUMNS, rows, cells)


def machines(frame: Frame, cells: int, glyphs: Glyphs) -> list[Line]:
    """Each memory of the machine, and what others and the process have of it."""
    lines: list[Line] = [()]
    for one in frame.engine.memory:
        role = severity(one.share)
        mark = {"warn": f"{glyphs.warn} ", "bad": f"{glyphs.bad} "}.get(role, "")
        lines.append(
            line(
                f"{fit(clean(one.name), 12)} ",
                *bar(one.share, max(4, cells - 44), glyphs, role),
                f" {of_size(one.used_bytes, one.total_bytes)} ",
                (f"{mark}{percent(one.share)}", role),
            )
        )
    memory = frame.memory
    lines.append(
        line(
            (
                f"process {size(memory.process_bytes)}, at most {size(memory.peak_bytes)}, planned {size(memory.planned_bytes)}   other programs {size(memory.foreign_bytes)}   available {size(memory.available_bytes)}",
                "dim",
            )
        )
    )
    lines.append(
        line(
            (
                f"auto {'on' if memory.auto else 'off' if memory.auto is not None else UNKNOWN}   preset {memory.preset or UNKNOWN}   all experts lie in {memory.bank or UNKNOWN}",
                "dim",
            )
        )
    )
    return lines


def ends(memory: Memory, now: int) -> tuple[int, int]:
    """Of the slider, where the engine does not say them too."""
    low, high = memory.least_kv_tokens or SMALL, memory.most_kv_tokens or now + LARGE
    return low, max(high, low + 1)


def slider(memory: Memory, now: int | None, want: int | None, cells: int, glyphs: Glyphs) -> Line:
    """KV from the least to the most; `|` stands where it is, the pointer where it would be."""
    if now is None or want is None:
        return line(("the engine does not say how much KV it has", "dim"))
    low, high = ends(memory, now)
    head, tail = f"KV {tokens(low)} ", f" {tokens(high)}   {whole(want)} tokens"
    room = max(8, cells - len(head) - len(tail))

    def place(of: int) -> int:
        return max(0, min(room - 1, round((of - low) / (high - low) * (room - 1))))

    track = [Span(glyphs.across, "dim")] * room
    track[place(now)] = Span(glyphs.down, "text")
    track[place(want)] = Span("O", "key")
    return (Span(head, "dim"), *track, Span(tail))


def row(what: WhatIf, glyphs: Glyphs, cells: int) -> Line:
    """The most telling first, as far as there is room."""
    label = fit(what.label, 12)
    if what.possible is False:
        return line((f"{label}{glyphs.bad} not possible", "warn"))
    parts = []
    if what.decode_tps is not None:
        parts.append(f"decode {rate(what.now_decode_tps)} -> {rate(what.decode_tps)} t/s")
    if what.miss_rate is not None:
        before = percent(1 - what.now_miss_rate, 1) if what.now_miss_rate is not None else UNKNOWN
        parts.append(f"hit {before} -> {percent(1 - what.miss_rate, 1)}")
    if what.moe_slots is not None:
        parts.append(f"experts {tokens(what.moe_slots)}")
    text = label
    for number, part in enumerate([*parts, f"KV {tokens(what.kv_tokens)}"]):
        more = text + ("   " if number else "") + part
        text = more if width(more) <= cells else text
    return line(text)


def moves(memory: Memory, glyphs: Glyphs) -> list[Line]:
    lines = [
        line(
            (f"{clock(m.at)} ", "dim"),
            f"{clean(m.reason)}: {clean(m.text)}   ",
            (f"{rate(m.before_tps)} -> {rate(m.after_tps)} t/s   {seconds(m.seconds)}", "dim"),
        )
        for m in reversed(memory.moves)
    ]
    return lines or [line(("memory has not changed hands", "dim"))]
