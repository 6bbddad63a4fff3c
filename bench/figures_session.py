"""Figures of one session turn by turn, from `python bench/keep.py clearing`: `hero` (first token of each turn) and `ahead` (when what was computed)."""

from __future__ import annotations

import math
from typing import Any

from figures_agent import bounds, first_tokens
from figures_data import row, series, source
from plot import Axes
from svg import GRID, INK, OTHER, OURS, PALE, SOFT, WARM, Svg, caption_lines

SCRIPTED = "assistant turns scripted, every token computed"


def draw_hero() -> str:
    """Seconds to the first token of each turn, of three engines, on a logarithmic axis up to the client's limit on silence."""
    ours, demand = series("clearing", "clearing.ttft"), series("clearing", "clearing.on_demand")
    kept = row("clearing", "clearing.ttft")
    peer = [turn["peer_s"] for turn in ours]
    limit = float(kept["watchdog_s"])
    note = (
        f"{SCRIPTED}; llama.cpp: its library's work alone on the same tokens, with its server's slots and prefix cache"
    )
    caption = source("clearing", "n = 1 session", note)
    svg = Svg(860, 430 + 13 * len(caption_lines(caption, 860)), "Time to the first token of each turn")
    svg.text(20, 30, "Time to the first token, turn by turn, while the agent edits what it has sent", 16, bold=True)
    svg.text(20, 49, _story(ours, demand), 11.5, SOFT)
    lines = [
        ("ft, works ahead", [t["ttft_s"] for t in ours], OURS),
        ("ft, on demand only", [t["ttft_s"] for t in demand], PALE),
        ("llama.cpp", peer, OTHER),
    ]
    span = bounds([s for _, seconds, _ in lines for s in seconds], limit)
    axes = Axes(svg, 66, 96, 620, 280, (0.5, len(ours) + 0.5), span, log=True)
    axes.grid_x(range(1, len(ours) + 1), title="request of the session")
    first_tokens(axes, lines, [bool(t["edited"]) for t in ours], limit)
    svg.caption(caption, 436)
    return svg.render()


def _story(ours: list[dict[str, Any]], demand: list[dict[str, Any]]) -> str:
    edited = sum(turn["edited"] for turn in ours)
    largest = max(turn["prompt_tokens"] for turn in ours)
    return f"{len(ours)} requests of up to {largest:,} tokens; {edited} of them carry an edit: an old tool result became one line"


def draw_ahead() -> str:
    """A timeline of the last turns: request, answer, tool, and what was computed while the tool ran."""
    times, turns = series("clearing", "clearing.timeline"), series("clearing", "clearing.ttft")
    shown = [n for n, time in enumerate(times[:-1]) if time["ahead_tokens"] and turns[n + 1]["edited"]][-3:]
    first, last = shown[0], shown[-1] + 1
    begin, end = times[first]["asked_s"], times[last]["replied_s"]
    caption = source("clearing", "one session", f"{SCRIPTED}; work ahead is seen by asking /v1/stats every 0.05 s")
    height = 112 + 84 * (last - first + 1)
    svg = Svg(860, height + 13 * len(caption_lines(caption, 860)), "What is computed while a tool runs")
    svg.text(20, 30, "While the tool runs, the next prompt is computed", 16, bold=True)
    svg.text(
        20,
        49,
        f"requests {first + 1} to {last + 1} of a session whose agent clears old tool results; seconds since its start",
        11.5,
        SOFT,
    )
    axes = Axes(svg, 110, 74, 730, height - 130, (begin, end), (0, 1))
    for tick in range(math.ceil(begin / 5) * 5, math.floor(end) + 1, 5):
        svg.line(axes.x(tick), 74, axes.x(tick), height - 56, GRID, 1)
        svg.text(axes.x(tick), height - 42, f"{tick} s", 11, SOFT, anchor="middle")
    for place, number in enumerate(range(first, last + 1)):
        _turn(svg, axes, times[number], turns[number], number, 80 + 84 * place, number < last)
    for x, color, label in (
        (20, WARM, "waits for the first token"),
        (210, INK, "reply"),
        (280, OTHER, "tool"),
        (345, OURS, "computed ahead"),
    ):
        svg.rect(x, height - 27, 12, 10, color, radius=2)
        svg.text(x + 17, height - 18, label, 11, SOFT)
    svg.caption(caption, height + 4)
    return svg.render()


def _turn(svg: Svg, axes: Axes, time: dict[str, Any], turn: dict[str, Any], number: int, y: float, tool: bool) -> None:
    svg.text(98, y + 16, f"request {number + 1}", 12.5, anchor="end")

    def bar(begin: float, end: float, at: float, color: str) -> None:
        svg.rect(axes.x(begin), at, max(axes.x(end) - axes.x(begin), 1.5), 15, color, radius=2)

    bar(time["asked_s"], time["first_s"], y + 4, WARM)
    bar(time["first_s"], time["replied_s"], y + 4, INK)
    found = f"{turn['cached_tokens']:,} of {turn['prompt_tokens']:,} tokens were there, {turn['anticipated_tokens']:,} of them computed ahead; TTFT {turn['ttft_s']:.2f} s"
    middle = axes.x(time["asked_s"])
    right = middle > axes.left + axes.width / 2
    svg.text(axes.x(time["replied_s"]) if right else middle, y - 2, found, 11, SOFT, anchor="end" if right else "start")
    if tool:
        bar(time["replied_s"], time["tool_end_s"], y + 22, OTHER)
        if time["ahead_tokens"]:
            bar(time["ahead_start_s"], time["ahead_end_s"], y + 40, OURS)
            svg.text(axes.x(time["ahead_end_s"]) + 6, y + 52, f"{time['ahead_tokens']:,} tokens", 11, OURS)
