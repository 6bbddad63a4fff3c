"""Axes for a chart: a rectangle of the picture in which values have places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from svg import GRID, SOFT, Svg


@dataclass(frozen=True, slots=True)
class Axes:
    """`left`, `top`, `width` and `height` in pixels; the values that lie on the edges. `log`: the vertical axis is logarithmic."""

    svg: Svg
    left: float
    top: float
    width: float
    height: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    log: bool = False

    def x(self, value: float) -> float:
        return self.left + self.width * (value - self.xs[0]) / (self.xs[1] - self.xs[0])

    def y(self, value: float) -> float:
        low, high, at = (*self.ys, value) if not self.log else (*map(math.log10, self.ys), math.log10(value))
        return self.top + self.height * (1 - (at - low) / (high - low))

    def at(self, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(self.x(x), self.y(y)) for x, y in points]

    def grid_y(self, ticks: Sequence[float], told: Callable[[float], str] = "{:g}".format) -> None:
        for tick in ticks:
            self.svg.line(self.left, self.y(tick), self.left + self.width, self.y(tick), GRID, 1)
            self.svg.text(self.left - 8, self.y(tick) + 4, told(tick), 11, SOFT, anchor="end")

    def grid_x(self, ticks: Sequence[float], told: Callable[[float], str] = "{:g}".format, title: str = "") -> None:
        bottom = self.top + self.height
        for tick in ticks:
            self.svg.line(self.x(tick), bottom, self.x(tick), bottom + 4, SOFT, 1)
            self.svg.text(self.x(tick), bottom + 17, told(tick), 11, SOFT, anchor="middle")
        self.svg.line(self.left, bottom, self.left + self.width, bottom, SOFT, 1)
        if title:
            self.svg.text(self.left + self.width / 2, bottom + 34, title, 11.5, SOFT, anchor="middle")
