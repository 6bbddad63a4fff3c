"""A few lines of SVG: enough for a bar chart and a diagram, readable on light and dark pages."""

from __future__ import annotations

from html import escape

INK, SOFT, GRID, OURS, OTHER, ACCENT = "#1f2933", "#52606d", "#d9e2ec", "#0b7285", "#9aa5b1", "#c92a2a"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


class Svg:
    """Collects shapes on a white card of the given size (pixels)."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
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
            f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{color}' text-anchor='{anchor}'{weight}>{escape(text)}</text>"
        )

    def rect(self, x: float, y: float, w: float, h: float, fill: str, stroke: str = "none", radius: float = 3) -> None:
        self._parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(w, 0):.1f}' height='{h:.1f}' rx='{radius}' fill='{fill}' stroke='{stroke}'/>"
        )

    def frame(self, x: float, y: float, w: float, h: float, stroke: str) -> None:
        self._parts.append(
            f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='10' fill='none' stroke='{stroke}' stroke-dasharray='6 4'/>"
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, color: str = SOFT, width: float = 1.2, arrow: bool = False
    ) -> None:
        extra = " marker-end='url(#arrow)'" if arrow else ""
        self._parts.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{color}' stroke-width='{width}'{extra}/>"
        )

    def render(self) -> str:
        width, height = self._size
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img'>"
            f"<title>{escape(self._title)}</title>"
            "<defs><marker id='arrow' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' orient='auto'>"
            f"<path d='M0 0 L10 5 L0 10 z' fill='{SOFT}'/></marker></defs>"
            f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>"
        )
        return head + "".join(self._parts) + "</svg>\n"


def bars(title: str, rows: list[tuple[str, float, str, bool]], caption: str, width: int = 760) -> str:
    """Horizontal bars. Each row: label, value, the value as text, ours or not."""
    top, step, left, right = 56, 34, 250, 110
    height = top + step * len(rows) + 40
    svg = Svg(width, height, title)
    svg.text(20, 30, title, 16, bold=True)
    largest = max(value for _, value, _, _ in rows) or 1
    for i, (label, value, shown, ours) in enumerate(rows):
        y = top + i * step
        svg.text(left - 12, y + 16, label, 13, anchor="end")
        svg.rect(left, y, (width - left - right) * value / largest, 22, OURS if ours else OTHER)
        svg.text(left + (width - left - right) * value / largest + 8, y + 16, shown, 13, bold=ours)
    svg.text(20, height - 14, caption, 9.5, SOFT)
    return svg.render()
