"""Figures of rates and of the demo session: `decode`, `demo`."""

from __future__ import annotations

import demo
from figures_data import load, rows, source
from svg import ACCENT, OTHER, OURS, SOFT, Svg, bars, caption_lines


def draw_decode() -> str:
    peers = list(rows("decode_transformers", r"decode\..*\.transformers-.*").values())
    shown = [("ft, q8_0 experts", peers[0]["value"], f"{peers[0]['value']:.1f} tokens/s", True)]
    for r in peers:
        precision = r["name"].rpartition("-")[2]
        shown.append((f"transformers, {precision}", r["baseline"], f"{r['baseline']:.1f} tokens/s", False))
    caption = source("decode_transformers", f"medians of {peers[0]['samples']} rounds")
    return bars("Decode, one sequence: ours and transformers on the same weights", shown, caption)


def draw_demo() -> str:
    """Cached, replayed and new tokens of each request of the demo session, with its TTFT."""
    records = demo.from_rows(load("demo")["rows"])
    caption = source("demo", "n = 1", "assistant turns scripted, every token computed")
    count = len(records)
    svg = Svg(
        760, 96 + 40 * count + 13 * len(caption_lines(caption, 760)), "What each request of the demo session computed"
    )
    svg.text(20, 30, "Scripted five-step session: what each request re-reads", 16, bold=True)
    svg.text(
        20, 50, "grey: already there (cached) · red: seen before, computed again (replayed) · teal: new", 11.5, SOFT
    )
    largest = max(r["prompt_tokens"] for r in records)
    for i, record in enumerate(records, 1):
        y, x, scale = 66 + (i - 1) * 40, 110.0, 440 / largest
        svg.text(98, y + 17, f"request {i}", 12.5, anchor="end")
        for field, color in (("cached", OTHER), ("replayed", ACCENT), ("new", OURS)):
            width = record[f"{field}_tokens"] * scale
            svg.rect(x, y, width, 24, color, radius=0)
            x += width
        svg.text(x + 8, y + 17, f"{record['prompt_tokens']} tokens, TTFT {record['ttft_s']:.2f} s", 12.5)
    svg.caption(caption, 76 + 40 * count + 20)
    return svg.render()
