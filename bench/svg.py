"""A few lines of SVG: enough for charts and diagrams, readable on light and dark pages.

Colours are those of a light page; where the reader's system is dark, a style sheet in the picture exchanges each for its partner.
The card behind everything is painted too, so that a picture is readable whatever page it lies on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

INK, SOFT, GRID, CARD, ON = "#1f2933", "#52606d", "#d9e2ec", "#ffffff", "#fefefe"
OURS, PALE, OTHER, ACCENT, WARM, TINT = "#0b7285", "#63b3c1", "#9aa5b1", "#c92a2a", "#b35c00", "#f1f5f9"
DARK = {
    INK: "#e6edf3", SOFT: "#9fb0c0", GRID: "#37414d", CARD: "#0d1117", ON: "#0c1016", OURS: "#3bc9db", PALE: "#1f8a9c",
    OTHER: "#748394", ACCENT: "#ff7b72", WARM: "#f0a24a", TINT: "#1a222c",
}  # fmt: skip
NAMES = {color: f"c{number}" for number, color in enumerate(DARK)}
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
CAPTION_CHARS_PER_PX = 1 / 5.15


class Svg:
    """Collects shapes on a card of the given size (pixels)."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        color: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = " font-weight='bold'" if bold else ""
        self._parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' {_paint(color)} text-anchor='{anchor}'{weight}>{escape(text)}</text>"
        )

    def rect(self, x: float, y: float, w: float, h: float, fill: str, stroke: str = "none", radius: float = 3) -> None:
        self._parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(w, 0):.1f}' height='{h:.1f}' rx='{radius}' {_paint(fill, stroke)}/>"
        )

    def frame(self, x: float, y: float, w: float, h: float, stroke: str) -> None:
        self._parts.append(
            f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='10' {_paint('none', stroke)} stroke-dasharray='6 4'/>"
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        color: str = SOFT,
        width: float = 1.2,
        arrow: bool = False,
        dash: str = "",
    ) -> None:
        extra = (" marker-end='url(#arrow)'" if arrow else "") + (f" stroke-dasharray='{dash}'" if dash else "")
        self._parts.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' {_paint('none', color)} stroke-width='{width}'{extra}/>"
        )

    def curve(self, points: Sequence[tuple[float, float]], color: str, width: float = 2, dash: str = "") -> None:
        """Straight lines from point to point."""
        told = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        extra = f" stroke-dasharray='{dash}'" if dash else ""
        self._parts.append(
            f"<polyline points='{told}' {_paint('none', color)} stroke-width='{width}' stroke-linejoin='round'{extra}/>"
        )

    def dot(self, x: float, y: float, color: str, radius: float = 3.5, hollow: bool = False) -> None:
        fill, stroke = (CARD, color) if hollow else (color, "none")
        self._parts.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}' {_paint(fill, stroke)} stroke-width='1.6'/>"
        )

    def caption(self, text: str, y: float) -> None:
        """Small lines from `y` down, wrapped to the width."""
        for number, line in enumerate(caption_lines(text, self.width)):
            self.text(20, y + 13 * number, line, 9.5, SOFT)

    def render(self) -> str:
        dark = "".join(f".f{NAMES[c]}{{fill:{d}}}.s{NAMES[c]}{{stroke:{d}}}" for c, d in DARK.items())
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' height='{self.height}' role='img'>"
            f"<title>{escape(self._title)}</title>"
            f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>"
            "<defs><marker id='arrow' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' orient='auto'>"
            f"<path d='M0 0 L10 5 L0 10 z' {_paint(SOFT)}/></marker></defs>"
            f"<rect width='{self.width}' height='{self.height}' rx='8' {_paint(CARD)}/>"
        )
        return head + "\n".join(["", *self._parts]) + "\n</svg>\n"


def caption_lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, int((width - 40) * CAPTION_CHARS_PER_PX), break_on_hyphens=False)


def _paint(fill: str, stroke: str = "none") -> str:
    """Attributes for a light page, and the classes by which a dark one exchanges them."""
    classes = [f"{kind}{NAMES[color]}" for kind, color in (("f", fill), ("s", stroke)) if color in NAMES]
    told = f"fill='{fill}'" + (f" stroke='{stroke}'" if stroke != "none" else "")
    return told + (f" class='{' '.join(classes)}'" if classes else "")


def bars(title: str, rows: list[tuple[str, float, str, bool]], caption: str, width: int = 760) -> str:
    """Horizontal bars. Each row: label, value, the value as text, ours or not."""
    top, step, left, right = 56, 34, 250, 110
    lines = len(caption_lines(caption, width))
    height = top + step * len(rows) + 27 + 13 * lines
    svg = Svg(width, height, title)
    svg.text(20, 30, title, 16, bold=True)
    largest = max(value for _, value, _, _ in rows) or 1
    for i, (label, value, shown, ours) in enumerate(rows):
        y = top + i * step
        svg.text(left - 12, y + 16, label, 13, anchor="end")
        svg.rect(left, y, (width - left - right) * value / largest, 22, OURS if ours else OTHER)
        svg.text(left + (width - left - right) * value / largest + 8, y + 16, shown, 13, bold=ours)
    svg.caption(caption, top + step * len(rows) + 22)
    return svg.render()


def missing(title: str, command: str) -> str:
    """A card that says what would make the figure: no number is invented."""
    svg = Svg(760, 110, title)
    svg.text(20, 32, title, 16, bold=True)
    svg.text(20, 62, "Not drawn: no result is kept yet. This makes it:", 12.5, SOFT)
    svg.text(20, 86, command, 12.5, OURS, bold=True)
    return svg.render()
