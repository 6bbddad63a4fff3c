"""The table of sessions, and its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ftagent.dashboard.model import Frame, InFlight, Session, Watchdog
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import bar, severity
from ftagent.dashboard.widgets.cells import Line, clean, line
from ftagent.dashboard.widgets.tables import Cell, Column, table
from ftagent.dashboard.widgets.units import UNKNOWN, age, limit, percent, rate, seconds, tokens

OVER = ("ended", "lost", "crashed", "unreadable", "prepared")
COLUMNS = (
    Column("NAME", 8, 24, 0),
    Column("AGENT", 8, 18, 5),
    Column("STATUS", 13, 16, 1),
    Column("CTX used/window", 11, 25, 2),
    Column("TTFT last / p95", 11, 16, 3),
    Column("WATCHDOG", 12, 28, 4),
    Column("WARM", 4, 6, 6),
    Column("COST", 5, 8, 7, ">"),
    Column("HIT", 5, 6, 9, ">"),
    Column("OUT", 5, 7, 10, ">"),
    Column("BRANCH", 6, 20, 8),
    Column("PROJECT", 7, 16, 12),
    Column("CHANGED", 12, 30, 11),
)
NARROW = {"CTX used/window": "CTX", "TTFT last / p95": "TTFT", "WATCHDOG": "WD"}


def status_cell(session: Session, flying: InFlight | None, glyphs: Glyphs) -> Line:
    """A glyph and a word, with the rate while it decodes and how long it waits."""
    status = session.status
    if flying is not None and flying.stage == "decode":
        return line((f"{glyphs.running} decode {rate(flying.decode_tps, '/s')}", "good"))
    if flying is not None:
        return line((f"{glyphs.running} {flying.stage.upper()}", "accent"))
    since = f" {age(session.since_s)}" if session.since_s is not None else ""
    if status in ("running", "thinking", "prefill"):
        return line((f"{glyphs.running} {status}", "accent"))
    if status in ("crashed", "lost", "unreadable"):
        return line((f"{glyphs.bad} {status}{since}", "bad"))
    if status == "waiting":
        return line((f"{glyphs.warn} {status}{since}", "warn"))
    return line((f"{glyphs.dot} {status}{since}", "dim"))


def context_cell(session: Session, bars: int, glyphs: Glyphs) -> Line:
    used, window = session.context_tokens, session.window_tokens
    if used is None:
        return line((UNKNOWN, "dim"))
    share = used / window if window else None
    text = f"{tokens(used)}/{tokens(window)}"
    role = severity(share)
    mark = glyphs.warn if role == "bad" else ""
    if not bars:
        return line((text + mark, role if role != "good" else "text"))
    return line((f"{text}{mark} ".ljust(13), "text" if role == "good" else role), *bar(share, bars, glyphs, role))


def ttft_cell(session: Session) -> Line:
    if session.status in OVER and session.resume_s is not None:
        return line((f"resume ~{seconds(session.resume_s)}", "text"))
    if session.status in OVER and session.cold_s is not None:
        return line((f"cold ~{seconds(session.cold_s)}", "text"))
    if session.ttft_last_s is None and session.ttft_p95_s is None:
        return line((UNKNOWN, "dim"))
    return line(f"{seconds(session.ttft_last_s)} / {seconds(session.ttft_p95_s)}")


def watchdog_role(watchdog: Watchdog) -> str:
    return {"ok": "good", "amber": "warn", "red": "bad"}.get(watchdog.level or "", "dim")


def watchdog_cell(watchdog: Watchdog, bars: int, glyphs: Glyphs) -> Line:
    """Silence of the limit; the mark says amber and red without colour."""
    if watchdog.limit_s is None:
        return line((UNKNOWN, "dim"))
    if watchdog.silence_s is None:
        return line((f"of {limit(watchdog.limit_s)}", "dim"))
    share = watchdog.silence_s / watchdog.limit_s if watchdog.limit_s else None
    role = watchdog_role(watchdog)
    mark = {"amber": f"{glyphs.warn} ", "red": f"{glyphs.bad} "}.get(watchdog.level or "", "")
    text = f"{mark}{seconds(watchdog.silence_s)} of {limit(watchdog.limit_s)}"
    if not bars:
        return line((text, role))
    return line((text.ljust(13) + " ", role), *bar(share, bars, glyphs, role))


def hit_share(session: Session) -> float | None:
    return (
        session.cached_tokens / session.prompt_tokens
        if session.cached_tokens is not None and session.prompt_tokens
        else None
    )


def cost_text(session: Session) -> str:
    return f"{session.cost.currency}{session.cost.amount:.2f}" if session.cost else UNKNOWN


def agent_text(session: Session) -> str:
    version = session.agent_version or ""
    return clean(f"{session.agent or UNKNOWN} {version}".rstrip())


def short_diff(stat: str | None) -> str:
    """`3 files changed, 41 insertions(+), 7 deletions(-), 1 new` as `3 files +41 -7, 1 new`."""
    text = clean(stat or "")
    for long, short in (
        (r"(\d+) files? changed", r"\1 files"),
        (r",? (\d+) insertions?\(\+\)", r" +\1"),
        (r",? (\d+) deletions?\(-\)", r" -\1"),
    ):
        text = re.sub(long, short, text)
    return text.replace("1 files", "1 file") if text.startswith("1 files") else text


def row(session: Session, flying: InFlight | None, cells: int, glyphs: Glyphs) -> list[Cell]:
    bars = 10 if cells >= 140 else 6 if cells >= 110 else 0
    return [
        clean(session.name or session.id),
        agent_text(session),
        status_cell(session, flying, glyphs),
        context_cell(session, bars, glyphs),
        ttft_cell(session),
        watchdog_cell(flying.watchdog if flying else session.watchdog, bars, glyphs),
        session.warm_tier or UNKNOWN,
        cost_text(session),
        percent(hit_share(session)),
        tokens(session.output_tokens),
        clean(session.branch or UNKNOWN),
        clean(session.project or UNKNOWN),
        short_diff(session.diff_stat),
    ]


def session_table(
    shown: Sequence[Session], frame: Frame, cells: int, selected: int | None, glyphs: Glyphs
) -> list[Line]:
    flying = {one.session: one for one in frame.in_flight}
    columns: tuple[Column, ...] = COLUMNS
    if cells < 100:
        columns = tuple(Column(NARROW.get(c.head, c.head), c.least, c.most, c.rank, c.align) for c in COLUMNS)
    if cells >= 150 and not any(one.diff_stat for one in shown):
        columns = tuple(c for c in columns if c.head != "CHANGED")
    rows = [row(one, flying.get(one.id), cells, glyphs)[: len(columns)] for one in shown]
    return table(columns, rows, cells, selected, glyphs.pointer)
