"""A list in a box: its head, as many rows around the chosen one as there is room for, what stands below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, fill, line
from ftagent.dashboard.widgets.tables import Cell, Column, table, window


@dataclass(frozen=True, slots=True)
class Listing:
    """`cells` of the row with this number; `none` is said where there are no rows; `tail` stays at the bottom. `marked` False: no
    row is shown as chosen."""

    title: str
    columns: Sequence[Column]
    count: int
    chosen: int
    cells: Callable[[int], Sequence[Cell]]
    none: str = "none"
    note: str = ""
    focus: bool = False
    marked: bool = True
    tail: Sequence[Line] = field(default=())

    def lines(self, room: Room) -> list[Line]:
        """`room.height` lines of `room.width` cells."""
        cells, rows = room.width - 4, room.height - 2
        start, end = window(self.count, self.chosen, max(1, rows - 1 - len(self.tail)))
        shown = [self.cells(number) for number in range(start, end)]
        mark = self.chosen - start if shown and self.marked else None
        lines = table(self.columns, shown, cells, mark, room.glyphs.pointer)
        if not shown:
            lines.append(line((f"  {self.none}", "dim")))
        if self.tail and rows > len(self.tail):
            lines = [*fill(lines, cells, rows - len(self.tail)), *self.tail]
        note = self.note or (f"{end} of {self.count}" if end - start < self.count else "")
        return box(self.title, lines[:rows], room.width, room.height, room.glyphs, note, self.focus)
