"""The kept prefix results as tables and a figure: tokens that sessions with edited context compute."""

from __future__ import annotations

from typing import Any

import figures_data
from svg import ACCENT, GRID, OTHER, OURS, SOFT, Svg

SCENARIOS = {
    "append": "nothing is edited",
    "strip_all": "thinking is left out of every request",
    "strip_prev": "thinking of earlier turns is left out",
    "clear_tools": "tool results older than four become a placeholder",
    "clear_tools_8": "the same, eight at a time",
    "reminder": "a reminder behind the user's text, gone in the next turn",
    "carrier": "a last message that the next request no longer has",
    "compact": "a summary replaces the session above 40k",
    "volatile_header": "a header that changes with each request",
    "reserialise": "the client spells tool arguments anew",
    "subagent_12k": "second subagent, 12k of shared system prompt",
    "subagent_6k": "second subagent, 6k of it",
}
MODELS = {"sglang": "SGLang", "vllm": "vLLM", "llama_cpp": "llama.cpp"}
TOOL_TIMES = ("0.05s", "1s", "10s")
DRAWN = ("append", "strip_prev", "clear_tools", "clear_tools_8", "compact")
PALE = "#63b3c1"


def kept() -> dict[str, Any]:
    return {row["name"].removeprefix("prefix."): row["value"] for row in figures_data.load("prefix")["rows"]}


def caption() -> str:
    """What the counts rest on. They are exact, so they name no machine."""
    kept = figures_data.load("prefix")
    return f"bench/results/prefix.json · {kept['date']} · commit {kept['commit']} · token counts, exact on any machine"


def thousands(tokens: float) -> str:
    return f"{tokens / 1000:,.1f}" if tokens < 10_000 else f"{tokens / 1000:,.0f}"


def _table(heads: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *lines))


def sessions() -> str:
    """Per session: models of others, the bound, ours on demand and while the agent waits."""
    rows = kept()
    heads = [
        "thousand tokens computed",
        *MODELS.values(),
        "bound on demand",
        "ft, on demand",
        "ft, while the agent waits",
        "new text",
    ]
    lines = [
        [
            text,
            *(
                thousands(rows[f"{name}.{field}"])
                for field in (*(f"modelled_{m}" for m in MODELS), "bound", "prefilled", "critical", "new")
            ),
        ]
        for name, text in SCENARIOS.items()
    ]
    return _table(heads, lines)


def pauses() -> str:
    """Per session and tool time: thousand tokens and seconds while the agent waits."""
    rows = kept()
    heads = [
        "while the agent waits",
        *(f"tool time {t.removesuffix('s')} s" for t in TOOL_TIMES),
        "long enough",
        "computed ahead",
        "of it never used",
    ]
    lines = []
    for name, text in SCENARIOS.items():
        cells = [f"{thousands(rows[f'{name}.critical_{t}'])}k, {rows[f'{name}.wait_{t}']:,.0f} s" for t in TOOL_TIMES]
        cells.append(f"{thousands(rows[f'{name}.critical'])}k, {rows[f'{name}.wait']:,.0f} s")
        lines.append([text, *cells, f"{thousands(rows[f'{name}.background'])}k", f"{rows[f'{name}.wasted']:.1%}"])
    return _table(heads, lines)


def recorded() -> str:
    """Recorded sessions, with a template that keeps thinking and one that strips it."""
    rows = kept()
    names = sorted({name.split(".")[1] for name in rows if name.startswith("real.")})
    heads = [
        "tokens",
        "on demand",
        "bound",
        "while the agent waits",
        "new text",
        *(f"only new text left, {t.removesuffix('s')} s" for t in TOOL_TIMES),
    ]
    lines = []
    for name in names:
        for suffix, template in (("", "keeps thinking"), (".stripping", "strips it")):
            at = f"real.{name}{suffix}"
            counts = [f"{rows[f'{at}.{field}']:,}" for field in ("prefilled", "bound", "critical", "new")]
            lines.append([f"`{name}`, {template}", *counts, *(f"{rows[f'{at}.covered_{t}']:.0%}" for t in TOOL_TIMES)])
    return _table(heads, lines)


def draw() -> str:
    """Bars: what each engine computes in the sessions where they differ most."""
    rows = kept()
    bars = [(label, f"modelled_{field}", OTHER) for field, label in MODELS.items()]
    bars += [("ft, on demand", "prefilled", PALE), ("ft, agent waits", "critical", OURS)]
    step, gap, top, left, right = 17, 34, 84, 150, 90
    svg = Svg(760, top + len(DRAWN) * (len(bars) * step + gap) + 40, "Tokens computed in sessions with edited context")
    svg.text(20, 30, "Thousand tokens computed in a session of 40 requests", 16, bold=True)
    svg.text(
        20,
        50,
        "grey: models of other engines' rules · pale: ft on demand, the least an exact engine can compute",
        11.5,
        SOFT,
    )
    svg.text(
        20, 66, "teal: what is left while the agent waits, with pauses long enough · red line: new text", 11.5, SOFT
    )
    largest = max(rows[f"{name}.{field}"] for name in DRAWN for _, field, _ in bars)
    scale, y = (760 - left - right) / largest, float(top)
    for name in DRAWN:
        svg.text(20, y + 14, SCENARIOS[name], 12.5, bold=True)
        y += 22
        for label, field, color in bars:
            value = rows[f"{name}.{field}"]
            svg.text(left - 10, y + 11.5, label, 11, SOFT, anchor="end")
            svg.rect(left, y, value * scale, step - 4, color, radius=2)
            svg.text(left + value * scale + 6, y + 11.5, thousands(value), 11, bold=color == OURS)
            y += step
        new = left + rows[f"{name}.new"] * scale
        svg.line(new, y - len(bars) * step - 2, new, y - 2, ACCENT)
        y += gap - 22
    svg.line(left, top + 18, left, y - 12, GRID)
    svg.text(20, y + 20, caption(), 9.5, SOFT)
    return svg.render()


TABLES = {"sessions": sessions, "pauses": pauses, "recorded": recorded}
