"""Points and curves in cells, with their axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ftagent.dashboard.widgets.cells import Line, Span, fill, fit, merged


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) drawn with `mark`; a joined one is drawn between its points too."""

    points: Sequence[tuple[float, float]]
    mark: str
    role: str
    joined: bool = False

    def at(self, x: float) -> float | None:
        """Of a joined curve, on the straight line between the points around x; None outside them."""
        for (x0, y0), (x1, y1) in zip(self.points, self.points[1:], strict=False):
            if x0 <= x <= x1:
                return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return None


def plot(curves: Sequence[Curve], cells: int, rows: int, x_text: Callable[[float | None], str], y_text: Callable[[float | None], str], right: float | None = None, top: float | None = None, marks: Sequence[tuple[float, str, str]] = ()) -> list[Line]:  # fmt: skip
    """`rows` lines of `cells`, both axes begin at zero. `marks`: (x, letter, role), a column of that letter. Later curves lie above."""
    left, height = 8, rows - 1
    width = cells - left
    every = [p for curve in curves for p in curve.points]
    if width < 4 or height < 2 or not every:
        return fill([(Span("nothing to draw yet", "dim"),)], cells, rows)
    right = right or max(x for x, _ in every) or 1.0
    top = top or max([y for x, y in every if x <= right], default=1.0) or 1.0
    grid: list[list[Span]] = [[Span(" ")] * width for _ in range(height)]

    def put(x: float, y: float, mark: str, role: str) -> None:
        column, row = round(x / right * (width - 1)), round((1 - y / top) * (height - 1))
        if 0 <= column < width and 0 <= row < height:
            grid[row][column] = Span(mark, role)

    for x, letter, role in marks:
        for row in range(height):
            put(x, top * (1 - row / (height - 1)), letter, role)
    for curve in curves:
        if curve.joined:
            for column in range(width):
                y = curve.at(column / (width - 1) * right)
                if y is not None:
                    put(column / (width - 1) * right, y, curve.mark, curve.role)
        else:
            for x, y in curve.points:
                put(x, y, curve.mark, curve.role)
    labels = {0: y_text(top), height // 2: y_text(top * (1 - (height // 2) / (height - 1))), height - 1: y_text(0.0)}
    lines: list[Line] = [
        (Span(fit(labels.get(row, ""), left - 1, ">") + " ", "dim"), *merged(grid[row])) for row in range(height)
    ]
    axis = fit(x_text(0.0), width // 2) + fit(x_text(right), width - width // 2, ">")
    lines.append((Span(" " * left + axis, "dim"),))
    return lines
