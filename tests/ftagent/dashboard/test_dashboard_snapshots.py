"""Every screen as text, compared with the files in snapshots/. `FT_SNAPSHOTS=write` writes them anew: then read the diff."""

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ftagent.dashboard.mock import SCENARIOS, frame
from ftagent.dashboard.model import PARTS
from ftagent.dashboard.screens import make
from ftagent.dashboard.screens.chrome import Chrome, compose
from ftagent.dashboard.screens.new_session import NewSession
from ftagent.dashboard.screens.overlays import Confirm, Help, above
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.theme import ASCII, MONOCHROME, UNICODE
from ftagent.dashboard.widgets.ansi import rendered
from ftagent.dashboard.widgets.cells import line_width, plain

HERE = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 36), (200, 50))
SCENES = [("overview", name) for name in SCENARIOS] + [(part, "four") for part in PARTS[1:]]
SCENES += [
    ("engine", "crash"),
    ("engine", "upstream"),
    ("memory", "upstream"),
    ("anchors", "no-engine"),
    ("turns", "wide"),
    ("logs", "crash"),
]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def check(name: str, lines, room: Room) -> None:
    assert len(lines) == room.height
    assert {line_width(one) for one in lines} == {room.width}
    text, path = plain(lines) + "\n", HERE / f"{name}.txt"
    if os.environ.get("FT_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(("part", "scenario"), SCENES, ids=lambda s: s)
def test_a_screen_looks_as_it_did(part, scenario, size):
    room = Room(*size, UNICODE)
    check(f"{part}.{scenario}.{size[0]}x{size[1]}", compose(frame(scenario), make(part), room), room)


@pytest.mark.parametrize("part", PARTS)
def test_ascii_alone(part):
    room = Room(80, 24, ASCII)
    lines = compose(frame("four"), make(part), room)
    check(f"{part}.ascii.80x24", lines, room)
    assert plain(lines).isascii()


def test_nothing_of_colour_is_needed():
    """In the monochrome theme, as NO_COLOR has it, what is urgent is said in words and marks."""
    room = Room(80, 24, UNICODE)
    lines = compose(frame("watchdog"), make("overview"), room)
    shown = rendered(lines, MONOCHROME, True)
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])[;m]", shown)
    for word in ("gives up in 41 s", "✗ 4m19s of 5m", "will miss", "▶ PREFILL", "! waiting"):
        assert word in plain(lines), word


def test_table_only_where_it_is_narrow():
    room = Room(50, 16, UNICODE)
    check("overview.narrow.50x16", compose(frame("four"), make("overview"), room), room)


def test_states_within_screens():
    room = Room(120, 36, UNICODE)
    made = frame("four")
    turns = make("turns")
    turns.plotting = True
    check("turns.plot.120x36", compose(made, turns, room), room)
    overview = make("overview")
    overview.enter(made)
    check("overview.session.120x36", compose(made, overview, room), room)
    overview.move(made, 9)
    check("overview.session.80x24", compose(made, overview, room.of(80, 24)), room.of(80, 24))
    engine, small = make("engine"), room.of(80, 24)
    engine.pane = 1
    check("engine.past.80x24", compose(frame("crash"), engine, small), small)
    view = make("overview")
    check("help.120x36", above(compose(made, view, room), Help(view, False).lines(made, room), room), room)
    form = NewSession(("claude", "codex"))
    form.plan, form.plan_of = (
        "Plan: claude 2.1.332 -> qwen3.6-35b-a3b (local engine)\n\n session   new  claude-3",
        form.preview().arguments,
    )
    check("form.120x36", above(compose(made, view, room), form.lines(made, room), room), room)
    asked = Confirm("Delete the state at token 57,344? claude-2 would go on from the one before it.", lambda: None)
    check("anchors.ask.80x24", above(compose(made, make("anchors"), small), asked.lines(made, small), small), small)
    check("overview.frozen.120x36", compose(made, view, room, Chrome(frozen_s=14.2)), room)
    check("overview.readonly.80x24", compose(replace(made, readonly=True), view, room.of(80, 24)), room.of(80, 24))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("part", PARTS)
def test_every_size_is_filled_exactly(part, scenario):
    made, view = frame(scenario, 3.0), make(part)
    for width in (20, 40, 59, 60, 79, 99, 100, 119, 159, 160, 240):
        for height in (1, 2, 4, 7, 10, 16, 23, 24, 29, 30, 40, 80):
            lines = compose(made, view, Room(width, height, UNICODE))
            assert len(lines) == height, (width, height)
            assert {line_width(one) for one in lines} == {width}, (width, height)
