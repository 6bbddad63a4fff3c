"""The one Textual widget: it holds lines and repaints the cells that changed."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ftagent.dashboard.theme import Look, Palette
from ftagent.dashboard.widgets.cells import Line, width


def style_of(look: Look, background: str) -> Style:
    """As Rich has it; empty colours stay the terminal's own."""
    return Style(
        color=look.fg or None,
        bgcolor=look.bg or background or None,
        bold=look.bold or None,
        dim=look.dim or None,
        reverse=look.reverse or None,
    )


def changed(old: Line, new: Line) -> tuple[int, int]:
    """(first cell, cells) in which two lines of equal width differ; all from the first span that does to the last."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    first = sum(width(span.text) for span in new[:head])
    end = sum(width(span.text) for span in new[: len(new) - tail])
    before = sum(width(span.text) for span in old[: len(old) - tail])
    return first, max(end, before) - first


class Canvas(Widget, can_focus=True):
    """`show` takes what `compose` makes for exactly this size."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self.painted = 0  # cells repainted so far
        self.dress(palette)

    def dress(self, palette: Palette) -> None:
        """Another palette; everything is painted anew."""
        self.palette = palette
        self._styles: dict[str, Style] = {}
        self._strips.clear()
        self.refresh()

    @property
    def shown(self) -> list[Line]:
        return self._lines

    def show(self, lines: list[Line]) -> None:
        """Repaints what differs from what is shown."""
        if len(lines) != len(self._lines):
            self._lines = lines
            self._strips.clear()
            self.painted += self.size.width * len(lines)
            self.refresh()
            return
        regions = []
        for y, (old, new) in enumerate(zip(self._lines, lines, strict=True)):
            if old != new:
                self._strips.pop(y, None)
                first, cells = changed(old, new)
                if cells > 0:
                    regions.append(Region(first, y, cells, 1))
                    self.painted += cells
        self._lines = lines
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Of Textual: one line as segments."""
        strip = self._strips.get(y)
        if strip is None:
            spans = self._lines[y] if y < len(self._lines) else ()
            strip = Strip([Segment(span.text, self._style(span.role)) for span in spans])
            self._strips[y] = strip
        return strip

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = style_of(self.palette.look(role), self.palette.background)
        return style
