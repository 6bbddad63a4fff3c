"""`make figures`: draw docs/figures/*.svg from kept results and refresh every measured number in README.md and docs/.

A number in a text is written as `<!--n:RESULT:ROW:FIELD:FORMAT-->2.31<!--/n-->`; this script rewrites what stands between
the marks, and a test fails when it differs from the kept JSON.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import demo
import prefix_tables
import report
import tables
from svg import ACCENT, GRID, OTHER, OURS, SOFT, Svg, bars

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
NUMBER = re.compile(
    r"<!--n:(?P<result>[\w-]+):(?P<row>[^:]+):(?P<field>\w+):(?P<format>[^-]*)-->(?P<text>.*?)<!--/n-->"
)
TABLE = re.compile(r"<!--demo-table-->\n```\n(?P<text>.*?)\n```\n<!--/demo-table-->", re.DOTALL)
MARKED_TABLE = re.compile(r"(<!--table:(?P<room>\w+)\.(?P<name>\w+)-->)\n.*?\n?(?P<end><!--/table-->)", re.DOTALL)
TABLES_OF = {"prefix": prefix_tables.TABLES, "bench": tables.TABLES}
CAPTION = re.compile(r"<!--caption:(?P<result>[\w-]+)-->(?P<text>.*?)<!--/caption-->")


def value(result: str, row: str, field: str) -> Any:
    return next(r[field] for r in report.load(result)["rows"] if r["name"] == row)


def refreshed(text: str) -> str:
    """The text with every marked number and caption as the kept results have it."""
    text = NUMBER.sub(
        lambda m: m[0].replace(
            f"-->{m['text']}<!--", f"-->{format(value(m['result'], m['row'], m['field']), m['format'])}<!--"
        ),
        text,
    )
    text = TABLE.sub(lambda m: m[0].replace(m["text"], demo.table(demo.from_rows(report.load("demo")["rows"]))), text)
    text = MARKED_TABLE.sub(lambda m: f"{m[1]}\n{TABLES_OF[m['room']][m['name']]()}\n{m['end']}", text)
    return CAPTION.sub(
        lambda m: m[0].replace(f"-->{m['text']}<!--", f"-->{report.caption(report.load(m['result']))}<!--"), text
    )


def texts() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def draw_path() -> str:
    """The path of one request, from the agent to an expert's weights and back."""
    svg = Svg(980, 330, "The path of a request through ft")
    svg.text(24, 32, "One request, from the agent to an expert and back", 16, bold=True)
    boxes = [
        (24, "your agent", ["claude · codex · opencode", "openclaw · pi · mini"], OTHER),
        (
            214,
            "front: HTTP",
            ["messages · chat · responses", "heartbeats, errors, usage", "in that agent's dialect"],
            OURS,
        ),
        (404, "front: prompt", ["conversation → tokens", "spans and edit points", "tool calls, grammar"], OURS),
        (594, "worker: cache", ["radix tree of prefixes", "checkpoints at edit points", "chunks beside decodes"], OURS),
        (784, "worker: experts", ["bank in host memory", "slots in the fast tier", "C++ kernels, row by row"], OURS),
    ]
    for x, title, lines, color in boxes:
        svg.rect(x, 64, 172, 112, "#ffffff", color, 8)
        svg.rect(x, 64, 172, 28, color, color, 8)
        svg.text(x + 12, 83, title, 13, "#ffffff", bold=True)
        for i, line in enumerate(lines):
            svg.text(x + 12, 114 + i * 19, line, 11)
    for (x, *_), label in zip(boxes[:-1], ["POST", "meaning", "tokens", "rows"], strict=True):
        svg.line(x + 172, 120, x + 190, 120, arrow=True)
        svg.text(x + 181, 60, label, 10.5, SOFT, "middle")
    svg.line(870, 190, 870, 216)
    svg.line(870, 216, 110, 216)
    svg.line(110, 216, 110, 184, arrow=True)
    svg.text(
        490, 234, "the next token, one step at a time: streamed as thinking, text and tool calls", 12, SOFT, "middle"
    )
    svg.frame(10, 44, 960, 224, ACCENT)
    svg.text(24, 260, "this machine, loopback only: no route to a paid endpoint", 11.5, ACCENT)
    svg.line(24, 282, 956, 282, GRID)
    svg.text(
        24,
        304,
        "Next turn: the agent sends the whole conversation again; the radix tree resumes at the deepest checkpoint and computes the new text only.",
        12,
        SOFT,
    )
    return svg.render()


def draw_decode() -> str:
    document = report.load("decode_transformers")
    peers = [r for r in document["rows"] if ".transformers-" in r["name"]]
    rows = [("ft, q8_0 experts", peers[0]["value"], f"{peers[0]['value']:.1f} tokens/s", True)]
    for r in peers:
        precision = r["name"].rpartition("-")[2]
        rows.append((f"transformers, {precision}", r["baseline"], f"{r['baseline']:.1f} tokens/s", False))
    return bars("Decode, one sequence: ours and transformers on the same weights", rows, report.caption(document))


def draw_demo() -> str:
    """Cached, replayed and new tokens of each request of the demo session, with its TTFT."""
    document = report.load("demo")
    records = demo.from_rows(document["rows"])
    count = len(records)
    svg = Svg(760, 76 + 40 * count + 44, "What each request of the demo session computed")
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
    svg.text(20, 76 + 40 * count + 28, report.caption(document), 9.5, SOFT)
    return svg.render()


def main() -> int:
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, draw in (
        ("path", draw_path),
        ("decode", draw_decode),
        ("demo", draw_demo),
        ("prefix", prefix_tables.draw),
    ):
        (FIGURES / f"{name}.svg").write_text(draw())
    for path in texts():
        old = path.read_text()
        new = refreshed(old)
        if new != old:
            path.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
