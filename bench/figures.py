"""`make figures`: draw docs/figures/*.svg from kept results and refresh every measured number in README.md and docs/.

A number in a text is written as `<!--n:RESULT:ROW:FIELD:FORMAT-->2.31<!--/n-->`, a table as `<!--table:ROOM.NAME-->`, kept output as
`<!--output:RESULT:ROW-->`; this script rewrites what stands between the marks, and a test fails when it differs from the kept JSON.
A figure whose result is not kept becomes a card that names the command which makes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import demo
import figures_agent
import figures_data
import figures_house
import figures_session
import figures_speed
import figures_tiers
import prefix_tables
import report
import tables
from figures_data import Missing
from svg import missing

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
NUMBER = re.compile(
    r"<!--n:(?P<result>[\w-]+):(?P<row>[^:]+):(?P<field>\w+):(?P<format>[^-]*)-->(?P<text>.*?)<!--/n-->"
)
TABLE = re.compile(r"(<!--demo-table-->\n```)\n.*?(?P<end>```\n<!--/demo-table-->)", re.DOTALL)
MARKED_TABLE = re.compile(r"(<!--table:(?P<room>\w+)\.(?P<name>\w+)-->)\n.*?\n?(?P<end><!--/table-->)", re.DOTALL)
OUTPUT = re.compile(r"(<!--output:(?P<result>\w+):(?P<row>[\w.]+)-->)\n.*?(?P<end><!--/output-->)", re.DOTALL)
TABLES_OF = {"prefix": prefix_tables.TABLES, "bench": tables.TABLES}
CAPTION = re.compile(r"<!--caption:(?P<result>[\w-]+)-->.*?<!--/caption-->")

DRAWN: dict[str, tuple[str, Callable[[], str]]] = {  # file: what it shows, how it is drawn
    "hero": ("Time to the first token of each turn", figures_session.draw_hero),
    "ahead": ("What is computed while a tool runs", figures_session.draw_ahead),
    "turns": ("First tokens of published agents", figures_agent.draw_turns),
    "house": ("The house", figures_house.draw_house),
    "path": ("The path of a request", figures_house.draw_path),
    "prefix": ("Tokens computed in sessions with edited context", prefix_tables.draw),
    "misses": ("Misses by capacity", figures_tiers.draw_misses),
    "split": ("How many misses to fill", figures_tiers.draw_split),
    "memory": ("KV and experts over a growing session", figures_tiers.draw_memory),
    "decode": ("Decode, one sequence", figures_speed.draw_decode),
    "demo": ("What each request of the demo session computed", figures_speed.draw_demo),
}


def number(result: str, row: str, field: str, form: str) -> str:
    """A number as the text has it; where it is not kept, what keeps it."""
    try:
        found = figures_data.row(result, row)
    except Missing as error:
        return f"(not measured: `{error.command}`)"
    return "-" if found[field] is None else format(found[field], form)


def output(result: str, row: str) -> str:
    """What a program printed, as a block of text; where it is not kept, what keeps it."""
    try:
        found = figures_data.row(result, row)
    except Missing as error:
        return f"```\nNot kept yet. This makes it: {error.command}\n```"
    return f"```text\n{found['text'].rstrip()}\n```"


def demo_table() -> str:
    return demo.table(demo.from_rows(figures_data.load("demo")["rows"]))


def refreshed(text: str) -> str:
    """The text with every marked number, table, output and caption as the kept results have it."""
    text = NUMBER.sub(
        lambda m: m[0].replace(
            f"-->{m['text']}<!--", f"-->{number(m['result'], m['row'], m['field'], m['format'])}<!--"
        ),
        text,
    )
    text = TABLE.sub(lambda m: f"{m[1]}\n{demo_table()}\n{m['end']}", text)
    text = MARKED_TABLE.sub(lambda m: f"{m[1]}\n{TABLES_OF[m['room']][m['name']]()}\n{m['end']}", text)
    text = OUTPUT.sub(lambda m: f"{m[1]}\n{output(m['result'], m['row'])}\n{m['end']}", text)
    return CAPTION.sub(
        lambda m: f"<!--caption:{m['result']}-->{report.caption(figures_data.load(m['result']))}<!--/caption-->", text
    )


def texts() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def drawn(name: str) -> tuple[str, Missing | None]:
    """The picture called `name`, and what was missing for it."""
    title, draw = DRAWN[name]
    try:
        return draw(), None
    except Missing as error:
        return missing(title, error.command), error


def main() -> int:
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name in DRAWN:
        picture, lacking = drawn(name)
        (FIGURES / f"{name}.svg").write_text(picture)
        if lacking is not None:
            print(f"figures: {name} is not drawn: {lacking}", file=sys.stderr)
    for path in texts():
        old = path.read_text()
        new = refreshed(old)
        if new != old:
            path.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
