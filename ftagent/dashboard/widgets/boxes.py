"""A frame with a title around lines."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.cells import Line, Span, cut, fit_line, width


def box(title: str, lines: Sequence[Line], cells: int, rows: int, glyphs: Glyphs, note: str = "", focus: bool = False) -> list[Line]:  # fmt: skip
    """`rows` lines of `cells`, edges included; `note` stands at the right of the upper edge. A box in `focus` is marked by a sign."""
    if cells < 4 or rows < 2:
        return [(Span(" " * cells),)] * rows
    role = "accent" if focus else "border"
    left, right, low_left, low_right = tuple(glyphs.corners)
    mark = f"{glyphs.pointer} " if focus else ""
    title = f" {mark}{cut(title, cells - 6 - len(mark))} " if title else ""
    note = f" {note} " if note and width(title) + width(note) + 8 <= cells else ""
    middle = glyphs.across * (cells - 4 - width(title) - width(note))
    top = (
        Span(left + glyphs.across, role), Span(title, "title"), Span(middle, role), Span(note, "dim"),
        Span(glyphs.across + right, role),
    )  # fmt: skip
    done: list[Line] = [tuple(span for span in top if span.text)]
    edge = Span(glyphs.down, role)
    for number in range(rows - 2):
        inner = fit_line((Span(" "), *lines[number]) if number < len(lines) else (), cells - 3)
        done.append((edge, *inner, Span(" "), edge))
    done.append((Span(low_left + glyphs.across * (cells - 2) + low_right, role),))
    return done
