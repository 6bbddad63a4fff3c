"""Figures of the tiers: `misses` by capacity, `split` between filling and computing in place, `memory` over a growing session."""

from __future__ import annotations

import re

from figures_data import Missing, row, rows, series, source
from plot import Axes
from svg import INK, OTHER, OURS, PALE, SOFT, WARM, Svg, caption_lines

MISSES = r"experts\.miss\.(\w+)\.([\d.]+)"
POLICIES = {
    "lru": ("least recently used", OTHER, ""),
    "s3fifo": ("S3-FIFO", SOFT, "3 3"),
    "prefill": ("fixed by the prompt", WARM, "6 4"),
    "frequency": ("ft: use, halved by age", OURS, ""),
    "ahead4": ("4 tokens foreseen exactly", PALE, "6 4"),
    "belady": ("Belady: all foreseen", INK, ""),
}
SWEEP = re.compile(r"sweep q=0\.\.\d+: ([\d. ]+)")
MACHINE = re.compile(r"split\.ratio\.([\d.]+)-([\d.]+)")


def draw_misses() -> str:
    """The share of routed experts that miss, by the share of experts that have a slot."""
    kept = rows("experts_miss", MISSES)
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, found in kept.items():
        policy, capacity = re.fullmatch(MISSES, name).groups()  # type: ignore[union-attr]
        curves.setdefault(policy, []).append((float(capacity), 100 * found["value"]))
    samples = f"n = {next(iter(kept.values()))['samples']:,} routed experts"
    caption = source(
        "experts_miss", samples, "recorded routing of SmolLM2 upcycled to 128 experts, top-8; its routers are random"
    )
    svg = Svg(760, 372 + 13 * len(caption_lines(caption, 760)), "Misses by capacity")
    svg.text(20, 30, "Experts that are not in a slot when a token needs them", 16, bold=True)
    capacities = sorted({capacity for points in curves.values() for capacity, _ in points})
    top = 10 * (1 + max(share for policy in POLICIES for _, share in curves.get(policy, [])) // 10)
    axes = Axes(svg, 62, 54, 480, 262, (0, capacities[-1] + 3), (0, top))
    axes.grid_y([n * 10 for n in range(int(top // 10) + 1)], "{:g} %".format)
    axes.grid_x(capacities, "{:g} %".format, title="experts that have a slot")
    shown = sorted((p for p in POLICIES if p in curves), key=lambda p: -max(share for _, share in curves[p]))
    for place, policy in enumerate(shown):
        label, color, dash = POLICIES[policy]
        points = axes.at(sorted(curves[policy]))
        bold = policy in ("frequency", "belady")
        svg.curve(points, color, 2.4 if bold else 1.6, dash)
        for x, y in points:
            svg.dot(x, y, color, 3)
        y = 70 + 20 * place
        svg.curve([(560, y), (590, y)], color, 2.4 if bold else 1.6, dash)
        svg.text(598, y + 4, label, 12, color, bold=bold)
    svg.caption(caption, 376)
    return svg.render()


def draw_split() -> str:
    """Milliseconds of one layer whose eight experts all miss, for every number of them that is filled, on four machines."""
    kept = rows("split", MACHINE.pattern)
    samples = next(iter(kept.values()))["samples"]
    caption = source(
        "split",
        f"means of {samples} rounds",
        "emulated device: bandwidths are scaled, copies and host reads take the time they say",
    )
    svg = Svg(860, 330 + 13 * len(caption_lines(caption, 860)), "How many misses to fill")
    svg.text(20, 30, "Fill an expert or compute it where it lies: the sweep, and what ft chose", 16, bold=True)
    svg.text(
        20,
        49,
        "grey: ms of a layer when q of its 8 misses are filled · teal: ft, started from a wrong profile",
        11.5,
        SOFT,
    )
    for place, (name, found) in enumerate(kept.items()):
        fill, host = re.fullmatch(MACHINE, name).groups()  # type: ignore[union-attr]
        told = SWEEP.search(found["note"])
        if told is None:
            raise Missing("split", f"has no sweep in {name}")
        sweep = [float(text) for text in told[1].split()]
        left = 62 + place * 206
        axes = Axes(svg, left, 92, 150, 168, (0, len(sweep) - 1), (0, 50))
        svg.text(left, 76, f"fill {fill}, host {host} GB/s", 11.5, bold=True)
        axes.grid_y(range(0, 51, 10))
        axes.grid_x(range(len(sweep)), title="q of 8 filled" if place == 0 else "")
        points = axes.at(list(enumerate(sweep)))
        svg.curve(points, OTHER, 1.6)
        for x, y in points:
            svg.dot(x, y, OTHER, 2.6)
        y = axes.y(found["value"])
        svg.line(left, y, left + axes.width, y, OURS, 2)
        svg.text(left + axes.width, y + 15, f"{found['value']:.1f} ms", 11, OURS, anchor="end", bold=True)
        svg.text(left, 312, f"{found['ratio']:.2f} x the best q", 11.5, SOFT)
    svg.caption(caption, 336)
    return svg.render()


def draw_memory(tier: str = "emulated") -> str:
    """KV and expert slots of one arena, and the decode rate, while a session grows."""
    name = f"memory.{tier}.session"
    steps, kept = series("memory", name), row("memory", name)
    note = f"modelled time, {tier} tier: arena, pools, prefix cache, scheduler and balancer are the engine's own, routing was recorded"
    caption = source("memory", f"{len(steps)} turns, {kept['samples']:,} decode steps", note)
    svg = Svg(860, 420 + 13 * len(caption_lines(caption, 860)), "KV and experts over a growing session")
    svg.text(20, 30, "One arena: KV takes slabs from experts while the session grows", 16, bold=True)
    told = f"decode {kept['value']:.1f} tokens/s over the session, {kept['ratio']:.2f} x the best split that never changes and holds it ({kept['static_kv_slabs']} slabs of KV)"
    svg.text(20, 49, told, 11.5, SOFT)
    slabs = kept["slabs"]
    xs = (0.0, max(step["tokens"] for step in steps) / 1024)
    upper = Axes(svg, 62, 74, 620, 180, xs, (0, slabs))
    upper.grid_y([round(slabs * part / 4) for part in range(5)])
    rates = [(step["tokens"] / 1024, step["tokens_per_s"]) for step in steps if step["tokens_per_s"]]
    lower = Axes(svg, 62, 280, 620, 90, xs, (0, 1.1 * max(rate for _, rate in rates)))
    lower.grid_y([0, round(lower.ys[1] / 2, -1), round(lower.ys[1], -1)])
    lower.grid_x([n for n in range(0, 129, 8) if n <= xs[1]], "{:g}k".format, title="tokens of the session")
    for field, label, color in (("experts_slabs", "slabs of experts", OURS), ("kv_slabs", "slabs of KV", WARM)):
        points = upper.at([(step["tokens"] / 1024, step[field]) for step in steps])
        svg.curve(points, color, 2.2)
        svg.text(692, points[-1][1] + 4, label, 12, color, bold=True)
    static = upper.y(kept["static_kv_slabs"])
    svg.line(62, static, 682, static, OTHER, 1.4, dash="6 4")
    svg.text(692, static + (18 if abs(static - points[-1][1]) < 14 else 4), "KV of the static split", 11.5, SOFT)
    points = lower.at(rates)
    svg.curve(points, INK, 1.8)
    svg.text(692, points[-1][1] + 4, "tokens/s, by turn", 12, INK)
    svg.caption(caption, 426)
    return svg.render()
