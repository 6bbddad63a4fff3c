"""Time to the first token, turn by turn, of published agents at scripted work (`turns`), from `python bench/keep.py agent`."""

from __future__ import annotations

import math
from typing import Any

from figures_data import Missing, row, rows, series, source
from plot import Axes
from svg import ACCENT, OTHER, OURS, SOFT, TINT, WARM, Svg, caption_lines

PANEL = 250  # pixels of height for each piece of work
TURNS = r"agent\.(w\d)\.turns"


def first_tokens(
    axes: Axes, lines: list[tuple[str, list[float | None], str]], edited: list[bool], limit: float | None
) -> None:
    """Seconds to the first token of each turn on a logarithmic axis, turns with an edit shaded, and the client's limit as a line.
    A label stands at the end of each line."""
    svg, right = axes.svg, axes.left + axes.width + 7
    for number, edit in enumerate(edited, 1):
        if edit:
            svg.rect(axes.x(number - 0.5), axes.top, axes.x(1) - axes.x(0), axes.height, TINT, radius=0)
            svg.text(axes.x(number), axes.top - 6, "edit", 10, WARM, anchor="middle")
    powers = range(math.ceil(math.log10(axes.ys[0])), math.floor(math.log10(axes.ys[1])) + 1)
    axes.grid_y([10.0**power for power in powers], lambda s: f"{s:g} s")
    if limit is not None:
        svg.line(axes.left, axes.y(limit), axes.left + axes.width, axes.y(limit), ACCENT, 1.6, dash="7 4")
        svg.text(right, axes.y(limit) + 4, f"agent gives up: {limit:,.0f} s", 11.5, ACCENT)
    labels = []
    for label, seconds, color in lines:
        points = axes.at([(n, s) for n, s in enumerate(seconds, 1) if s])
        if not points:
            continue
        svg.curve(points, color, 2.2)
        for x, y in points:
            svg.dot(x, y, color, 3.2)
        labels.append((points[-1][1], label, color))
    last = -math.inf
    for y, label, color in sorted(labels):
        last = max(y, last + 16)
        svg.text(right, last + 4, label, 11.5, color, bold=color == OURS)


def bounds(seconds: list[float | None], limit: float | None) -> tuple[float, float]:
    """The vertical axis: a power of ten below the least, somewhat above the largest."""
    known = [s for s in seconds if s]
    return 10 ** math.floor(math.log10(min(known))), 1.6 * max([*known, limit or 0.0])


def draw_turns() -> str:
    """One panel for each piece of work whose turns were kept."""
    kept = [
        name.split(".")[1] for name, found in sorted(rows("agent", TURNS).items()) if len(found.get("series") or []) > 1
    ]
    if not kept:
        raise Missing("agent", "has no series of turns", "--workload w2")
    note = "replies scripted, every token computed; llama.cpp: its library's prefill alone, with its server's slots and prefix cache"
    shown = [row("agent", f"agent.{name}.turns") for name in kept]
    caption = source("agent", "n = 1 session each", note, shown)
    svg = Svg(860, 56 + PANEL * len(kept) + 13 * len(caption_lines(caption, 860)), "First tokens of published agents")
    svg.text(20, 30, "Published agents at work: time to the first token of each turn", 16, bold=True)
    for place, name in enumerate(kept):
        _panel(svg, name, 62 + PANEL * place)
    svg.caption(caption, 62 + PANEL * len(kept))
    return svg.render()


def _panel(svg: Svg, name: str, top: float) -> None:
    turns: list[dict[str, Any]] = series("agent", f"agent.{name}.turns")
    about = row("agent", f"agent.{name}.turns")
    ours, peer = [t["ttft_s"] for t in turns], [t["peer_s"] for t in turns]
    limits = [t["watchdog_s"] for t in turns if t["watchdog_s"]]
    limit = min(limits) if limits else None
    wiring = ", wiring only: random weights" if "wiring" in str(about.get("note")) else ""
    deep = max(t["prompt_tokens"] for t in turns)
    svg.text(
        20,
        top + 8,
        f"{name.upper()}, {about['agent']} on {about['model']}{wiring}, prompts of up to {deep:,} tokens",
        12,
        SOFT,
    )
    axes = Axes(svg, 66, top + 34, 620, PANEL - 92, (0.5, len(turns) + 0.5), bounds([*ours, *peer], limit), log=True)
    axes.grid_x(range(1, len(turns) + 1), title="turn")
    first_tokens(axes, [("ft", ours, OURS), ("llama.cpp", peer, OTHER)], [bool(t["edit"]) for t in turns], limit)
