"""Pictures of the dashboard's main screens into docs/images, from its made-up scenarios: the same bytes at each run.

python bench/screens.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ftagent.dashboard.mock import frame
from ftagent.dashboard.model import PARTS, Part
from ftagent.dashboard.screens import make
from ftagent.dashboard.screens.chrome import compose
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.theme import DARK, UNICODE, Look, Palette
from ftagent.dashboard.widgets.cells import Line, width

CELL, ROW, PAD = 8.4, 18, 12
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
BLOCKS = {"█": (0.0, 1.0), "▁": (0.875, 0.125), "▂": (0.75, 0.25), "▃": (0.625, 0.375), "▄": (0.5, 0.5), "▅": (0.375, 0.625), "▆": (0.25, 0.75), "▇": (0.125, 0.875)}  # fmt: skip
SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}

SIZE = (120, 36)
SCENES: list[tuple[str, Part, str]] = [(part, part, "four") for part in PARTS]
SCENES += [("watchdog", "overview", "watchdog"), ("crash", "engine", "crash")]


def picture(lines: Sequence[Line], palette: Palette, title: str) -> str:
    """An SVG of a palette whose colours are `#rrggbb`. Bars are drawn as rectangles, so that no font leaves gaps between them."""
    cells = max((sum(width(span.text) for span in line) for line in lines), default=1)
    high, wide = len(lines) * ROW + 2 * PAD, cells * CELL + 2 * PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" font-family="{FONTS}" font-size="14">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{palette.background}"/>',
    ]
    for row, line in enumerate(lines):
        column = 0
        for span in line:
            parts += _span(span.text, palette.look(span.role), palette, column, row)
            column += width(span.text)
    return "\n".join([*parts, "</svg>", ""])


def _span(text: str, look: Look, palette: Palette, column: int, row: int) -> list[str]:
    fg, bg = (palette.background, look.fg) if look.reverse else (look.fg, look.bg)
    x, y = PAD + column * CELL, PAD + row * ROW
    parts = []
    if bg:
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width(text) * CELL:.1f}" height="{ROW}" fill="{bg}"/>')
    at = 0
    for _, group in groupby(text, lambda c: c if c in BLOCKS or c in SHADES else ""):
        run = "".join(group)
        drawn = run[0] in BLOCKS or run[0] in SHADES
        parts += [_block(run, x + at * CELL, y, fg)] if drawn else _text(run, x + at * CELL, y, fg, look)
        at += width(run)
    return parts


def _text(text: str, x: float, y: float, fg: str, look: Look) -> list[str]:
    if not text.strip():
        return []
    bold = ' font-weight="bold"' if look.bold else ""
    lead = len(text) - len(text.lstrip(" "))
    body = text.strip(" ")
    size = f' textLength="{width(body) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    return [
        f'<text x="{x + lead * CELL:.1f}" y="{y + 13.5:.1f}" fill="{fg}" xml:space="preserve"{bold}{size}>{escape(body)}</text>'
    ]


def _block(run: str, x: float, y: float, fg: str) -> str:
    """The same block character once or more."""
    top, share = BLOCKS.get(run[0], (0.0, 1.0))
    opacity = f' fill-opacity="{SHADES[run[0]]}"' if run[0] in SHADES else ""
    return f'<rect x="{x:.1f}" y="{y + 1 + top * (ROW - 2):.1f}" width="{len(run) * CELL + 0.1:.1f}" height="{share * (ROW - 2):.1f}" fill="{fg}"{opacity}/>'


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name, part, scenario in SCENES:
        view = make(part)
        lines = compose(frame(scenario), view, Room(*SIZE, UNICODE))
        (folder / f"dashboard-{name}.svg").write_text(picture(lines, DARK, f"ft top: {view.title}"), encoding="utf-8")
    plot = make("turns")
    plot.plotting = True  # type: ignore[attr-defined]
    lines = compose(frame("four"), plot, Room(*SIZE, UNICODE))
    (folder / "dashboard-plot.svg").write_text(
        picture(lines, DARK, "ft top: first token against tokens"), encoding="utf-8"
    )
    session = make("overview")
    session.enter(frame("four"))
    lines = compose(frame("four"), session, Room(*SIZE, UNICODE))
    (folder / "dashboard-session.svg").write_text(picture(lines, DARK, "ft top: one session"), encoding="utf-8")
    print(f"{len(SCENES) + 2} pictures in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
