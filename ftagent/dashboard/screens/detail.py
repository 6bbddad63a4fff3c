"""One session in full: who it is, what it costs, what changed since its launch, its receipts, its changes, its requests."""

from __future__ import annotations

import time

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Frame, Receipt, Session
from ftagent.dashboard.screens.sessions import (
    agent_text,
    context_cell,
    cost_text,
    hit_share,
    status_cell,
    ttft_cell,
    watchdog_cell,
)
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.widgets.cells import Line, beside, clean, fill, line, wrap
from ftagent.dashboard.widgets.tables import Cell, Column, table
from ftagent.dashboard.widgets.units import UNKNOWN, joules, percent, seconds, tokens, whole

KEYS = (
    Key("f", "f", "fork this session", "view.fork", acting=True),
    Key("R", "R", "rename it", "view.rename", acting=True),
    Key("s", "s", "stop its agent", "stop", acting=True),
    Key("D", "D", "delete our record of it", "view.delete", acting=True),
)
HINTS = (
    ("r", "resume"),
    ("f", "fork"),
    ("R", "rename"),
    ("y", "copy"),
    ("s", "stop"),
    ("D", "delete"),
    ("Esc", "back"),
)
LABEL = 18
REQUESTS = 14  # lines of them at most
SIDE_BY_SIDE = 150
RECEIPTS = (
    Column("LAUNCHED", 11, 11, 0),
    Column("FOR", 5, 7, 0, ">"),
    Column("EXIT", 4, 4, 0, ">"),
    Column("REQUESTS", 8, 8, 2, ">"),
    Column("PROMPT", 6, 8, 1, ">"),
    Column("CACHED", 6, 7, 1, ">"),
    Column("OUT", 5, 7, 1, ">"),
    Column("TTFT p50", 8, 8, 3, ">"),
    Column("LONGEST", 7, 7, 5, ">"),
    Column("ENERGY", 6, 8, 5, ">"),
    Column("COST", 5, 8, 5, ">"),
)


def detail(session: Session, frame: Frame, room: Room) -> list[Line]:
    """All of it, the most asked for first; in two columns, at most `room.height` lines."""
    cells = room.width if room.width < SIDE_BY_SIDE else room.width // 2 - 1
    facts = _facts(session, frame, room.of(cells, room.height))
    more = [*_since(session, cells, room), *_receipts(session, cells), *_files(session)]
    if room.width < SIDE_BY_SIDE:
        return [*facts, *more, *_requests(session, frame, REQUESTS)]
    left = fill([*facts, *more], cells + 2, room.height)
    right = fill(_requests(session, frame, room.height)[1:], room.width - cells - 2, room.height)
    return beside(left, right)


def _facts(session: Session, frame: Frame, room: Room) -> list[Line]:
    glyphs = room.glyphs
    flying = next((one for one in frame.in_flight if one.session == session.id), None)
    dog = watchdog_cell(flying.watchdog if flying else session.watchdog, 16, glyphs)
    source = f"  limit from {session.watchdog.source}" if session.watchdog.source else ""
    where = "   detached: r attaches" if session.detached else ""
    facts: list[tuple[str, Line | str]] = [
        ("session", f"{clean(session.name)}   {session.id}"),
        ("status", line(*status_cell(session, flying, glyphs), (where, "dim"))),
        ("agent", agent_text(session)),
        ("project", f"{clean(session.project or UNKNOWN)}   branch {clean(session.branch or UNKNOWN)}"),
        ("model", clean(session.model or UNKNOWN)),
        ("context", context_cell(session, 16, glyphs)),
        ("first token", _first_tokens(session)),
        ("watchdog", line(*dog, (source, "dim"))),
        ("warm", _warm(session)),
        ("requests", f"{whole(session.requests)}   turns {whole(session.turns)}   retries {whole(session.retries)}   errors {whole(session.errors)}"),
        ("tokens", f"prompt {whole(session.prompt_tokens)}   cached {whole(session.cached_tokens)} ({percent(hit_share(session), 1)})   output {whole(session.output_tokens)}"),
        ("cost elsewhere", f"{cost_text(session)}   {clean(session.cost.price) if session.cost else ''}".rstrip()),
    ]  # fmt: skip
    facts += [("its own id" if not n else "", f"{clean(one)}   {source}") for n, (one, source) in enumerate(session.harness_ids)]  # fmt: skip
    if session.parent:
        facts.append(("forked from", clean(session.parent)))
    if session.observed:
        facts.append(("declaration", "none: what it edits is watched, not declared"))
    return [_fact(name, value) for name, value in facts]


def _fact(name: str, value: Line | str) -> Line:
    return line((f"{name:<{LABEL}}", "dim"), *(line(value) if isinstance(value, str) else value))


def _first_tokens(session: Session) -> Line:
    if session.ttft_last_s is None and session.ttft_p50_s is None:
        return ttft_cell(session)
    times = (("last", session.ttft_last_s), ("p50", session.ttft_p50_s), ("p95", session.ttft_p95_s), ("longest", session.ttft_max_s))  # fmt: skip
    return line("   ".join(f"{name} {seconds(value)}" for name, value in times))


def _warm(session: Session) -> str:
    text = f"{session.warm_tier or UNKNOWN}   {tokens(session.warm_tokens)} tokens"
    if session.resume_s is not None or session.cold_s is not None:
        text += f"   next first token ~{seconds(session.resume_s)}, cold ~{seconds(session.cold_s)}"
    return text


def _since(session: Session, cells: int, room: Room) -> list[Line]:
    """What is another now than it was at its launch."""
    if session.changes is None:
        return []
    if not session.changes:
        return [_fact("since its launch", line((f"{room.glyphs.good} nothing is another", "good")))]
    lines: list[Line] = []
    for number, text in enumerate(session.changes):
        parts = wrap(f"{room.glyphs.warn} {clean(text)}", cells - LABEL)
        lines += [_fact("since its launch" if not number and not n else "", line((part, "warn"))) for n, part in enumerate(parts)]  # fmt: skip
    return lines


def _receipts(session: Session, cells: int) -> list[Line]:
    if not session.receipts:
        return []
    rows = [_receipt(one) for one in session.receipts]
    return [(), line(("receipts", "title")), *table(RECEIPTS, rows, cells)]


def _receipt(one: Receipt) -> list[Cell]:
    when = UNKNOWN if one.started_at is None else time.strftime("%m-%d %H:%M", time.localtime(one.started_at))
    share = None if one.cached_tokens is None or not one.prompt_tokens else one.cached_tokens / one.prompt_tokens
    return [
        when,
        seconds(one.seconds),
        UNKNOWN if one.exit is None else line((str(one.exit), "text" if one.exit == 0 else "warn")),
        whole(one.requests),
        tokens(one.prompt_tokens),
        percent(share),
        tokens(one.output_tokens),
        seconds(one.ttft_p50_s),
        seconds(one.ttft_max_s),
        joules(one.energy_j),
        UNKNOWN if one.price is None else f"{one.price:,.2f}",
    ]


def _files(session: Session) -> list[Line]:
    head = line((f"{'changed files':<{LABEL}}", "dim"), clean(session.diff_stat or UNKNOWN))
    return [(), head, *(line((" " * LABEL + clean(text), "dim")) for text in session.diff_files)]


def _requests(session: Session, frame: Frame, rows: int) -> list[Line]:
    """The newest ones, in `rows` lines."""
    turns = [turn for turn in frame.turns if turn.session == session.id]
    if not turns or rows < 3:
        return []
    lines: list[Line] = [(), line(("last requests", "title"))]
    for turn in reversed(turns[-(rows - 2) :]):
        text = f"{whole(turn.prompt_tokens)} = cached {whole(turn.cached_tokens)} + new {whole(turn.new_tokens)}"
        lines.append(line(f"{seconds(turn.ttft_s):>7}  ", f"{text:<40}", (clean(turn.why), "dim")))
    return lines
