"""Columns that leave, the least important first, when there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ftagent.dashboard.widgets.cells import Line, Span, fit, fit_line, line_width, width

FIRM = 4


@dataclass(frozen=True, slots=True)
class Column:
    """`least` and `most` cells; of two the one with the higher `rank` leaves first."""

    head: str
    least: int
    most: int = 0
    rank: int = 0
    align: str = "<"


Cell = Line | str


def layout(columns: Sequence[Column], natural: Sequence[int], cells: int, gap: int = 2) -> list[tuple[int, int]]:
    """(column, cells) of those that have room. Columns of rank 0 to `FIRM` stay as long as their least fits; others only where
    all that is shown has what it wants. What is left over goes to those that want it, the first first."""
    wish = [max(column.least, min(natural[i], column.most or natural[i])) for i, column in enumerate(columns)]
    shown: list[int] = []
    for i in sorted(range(len(columns)), key=lambda i: (columns[i].rank, i)):
        firm = columns[i].rank <= FIRM
        sizes = [columns[j].least if firm else wish[j] for j in (*shown, i)]
        if shown and sum(sizes) + gap * len(shown) > cells:
            break
        shown.append(i)
    shown.sort()
    given = {i: columns[i].least for i in shown}
    spare = cells - sum(given.values()) - gap * (len(shown) - 1)
    for i in shown:
        more = min(wish[i] - given[i], max(0, spare))
        given[i] += more
        spare -= more
    return [(i, min(given[i], cells)) for i in shown]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], cells: int, selected: int | None = None, mark: str = ">", gap: int = 2) -> list[Line]:  # fmt: skip
    """The head and every row, `cells` wide; the `selected` row is marked by a sign as well as by its look."""
    natural = [max([width(column.head), *(_width(row[i]) for row in rows)]) for i, column in enumerate(columns)]
    places = layout(columns, natural, cells - 2, gap)
    head = (" " * gap).join(fit(columns[i].head, size, columns[i].align) for i, size in places)
    lines: list[Line] = [fit_line((Span("  " + head, "dim"),), cells)]
    for number, row in enumerate(rows):
        spans: list[Span] = [Span(f"{mark} " if number == selected else "  ", "key")]
        for position, (i, size) in enumerate(places):
            if position:
                spans.append(Span(" " * gap))
            spans.extend(_cell(row[i], size, columns[i].align))
        fitted = fit_line(tuple(spans), cells)
        lines.append(tuple(Span(s.text, f"{s.role}+select") for s in fitted) if number == selected else fitted)
    return lines


def _width(cell: Cell) -> int:
    return width(cell) if isinstance(cell, str) else line_width(cell)


def _cell(cell: Cell, size: int, align: str) -> Line:
    if isinstance(cell, str):
        return (Span(fit(cell, size, align)),)
    if align == ">" and line_width(cell) < size:
        return (Span(" " * (size - line_width(cell))), *cell)
    return fit_line(cell, size)


def window(total: int, selected: int, rows: int) -> tuple[int, int]:
    """Which of `total` rows are shown so that the selected one is, with a little of what is around it."""
    if total <= rows:
        return 0, total
    start = max(0, min(selected - rows // 2, total - rows))
    return start, start + rows
