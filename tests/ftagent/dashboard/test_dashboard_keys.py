"""Every key of the help is pressed in the running application and must be seen to act."""

import json
from contextlib import asynccontextmanager

import pytest

from ftagent.dashboard import leaving
from ftagent.dashboard.app import Options
from ftagent.dashboard.keys import GLOBAL, NEVER
from ftagent.dashboard.mock import MockSource
from ftagent.dashboard.model import PARTS
from ftagent.dashboard.screens import make
from ftagent.dashboard.screens.overlays import Confirm, Help, shown_keys
from ftagent.dashboard.tui import Dashboard
from ftagent.dashboard.widgets.cells import plain

BEFORE = {  # what makes a key of use, pressed first
    "escape": ["slash", "c", "enter"],
    "shift+tab": ["tab"],
    "f": ["enter"],
    "R": ["enter"],
    "D": ["enter"],
}


@asynccontextmanager
async def dashboard(scenario="four", tmp_path=None, monkeypatch=None, **options):
    """A running application; what leaves it is recorded in `app.left`."""
    source = MockSource(scenario, readonly=options.get("readonly", False))
    app = Dashboard(source, source.frames(), Options(agents=("claude", "codex"), **options))
    app.left = []

    def recorded(name):
        def made(*what):
            async def work():
                app.left.append((name, *map(str, what)))

            return work if name != "output" else work()

        return made

    if monkeypatch is not None:
        for name in ("child", "page"):
            monkeypatch.setattr(leaving, name, recorded(name))

        async def output(command, columns=80):
            app.left.append(("output", *command))
            return "the plan"

        monkeypatch.setattr(leaving, "output", output)
        monkeypatch.setattr(app, "leave", lambda message: app.left.append(("leave", message)))
        monkeypatch.setattr(app, "copy", lambda text: app.left.append(("copy", text)))
        monkeypatch.setattr(app, "lend", lambda work: work())
        monkeypatch.chdir(tmp_path)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause(0.05)
        app.source = source
        yield app, pilot
        await source.close()


def seen(app):
    """Everything a person, the engine or another program could notice."""
    desk = app.desk
    desk._message = ""
    lines = plain(desk.lines(60 if desk.part == "logs" else 120, 36))
    return (
        lines,
        list(app.source.acts),
        list(app.left),
        desk.part,
        desk.fps,
        desk.palette.name,
        desk.frozen_at is None,
        len(app.screen_stack),
        desk.view.everywhere,
        desk.view.reversed,
    )


def cases():
    for key in GLOBAL:
        yield "overview", key
    for part in PARTS:
        for key in make(part).all_keys():
            yield part, key


CASES = list(cases())


async def test_every_key_acts(tmp_path, monkeypatch):
    unseen = []
    async with dashboard("watchdog", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("space")  # frames stand still, so that only keys change what is seen
        for part, key in CASES:
            for name in key.keys.split(","):
                desk = app.desk
                desk.views.clear()
                desk.overlay = desk.typing = None
                desk.part = "logs" if name == "l" and part == "overview" else part
                if key.action.startswith("screen("):
                    desk.part = "doctor" if key.action == "screen(0)" else "overview"
                app.source.acts.clear()
                app.left.clear()
                before_keys = BEFORE.get(name, []) if part == "overview" else []
                if name in ("n", "N") and part == "logs":
                    desk.view.query = "engine"
                if name == "A":
                    await pilot.press("right")
                if part == "overview" and key.action in ("up", "first", "move(-10)"):
                    desk.view.move(desk.frame, 2)
                if key.action == "screen(6)":
                    desk.part = "overview"
                if key.action == "view.explain":
                    desk.view.chosen = "req0400"
                await pilot.press(*before_keys)
                before = seen(app)
                await pilot.press(name)
                await pilot.pause()
                written = list(tmp_path.iterdir())
                message = desk._message
                acted = seen(app) != before or bool(written) or bool(message)
                for path in written:
                    path.unlink()
                if not acted:
                    unseen.append((part, name, key.does))
                if len(app.screen_stack) > 1:
                    app.pop_screen()
                if desk.frozen_at is None:
                    await pilot.press("space")
    assert not unseen


async def test_help_lists_exactly_what_is_bound():
    async with dashboard() as (app, pilot):
        for part in PARTS:
            app.desk.go(part)
            await pilot.press("question_mark")
            assert isinstance(app.desk.overlay, Help)
            text = plain(app.desk.overlay.rows())
            for key in (*app.desk.view.bound(), *GLOBAL):
                assert key.does in text
            await pilot.press("escape")
            assert app.desk.overlay is None


async def test_read_only_has_no_acting_keys(tmp_path, monkeypatch):
    async with dashboard("watchdog", tmp_path, monkeypatch, readonly=True) as (app, pilot):
        acting = [key for key in GLOBAL if key.acting]
        assert not set(acting) & set(shown_keys(GLOBAL, True))
        for key in acting:
            await pilot.press(key.keys.split(",")[0])
        await pilot.press("k", "m", "right", "A", "enter")
        assert app.source.acts == []
        assert [one for one in app.left if one[0] != "copy"] == []
        assert "[k]" not in plain(app.desk.lines(120, 36))


async def test_acting_keys_ask_first(tmp_path, monkeypatch):
    async with dashboard("four", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("X")
        assert isinstance(app.desk.overlay, Confirm)
        await pilot.press("n")
        assert app.source.acts == []
        await pilot.press("X", "y")
        await pilot.pause(0.02)
        assert app.source.acts == [("cancel", {"request": "req0412"})]
        await pilot.press("m", "L", "A")
        assert app.source.acts[1:] == []
        await pilot.press("y")
        await pilot.pause(0.02)
        assert app.source.acts[1:] == [("apply", {"kv_tokens": 98_304 + 8_192})]
        await pilot.press("1", "enter", "s", "y")
        await pilot.pause(0.02)
        assert app.source.acts[2][0] == "stop"


async def test_rescue_of_a_request_near_its_limit(tmp_path, monkeypatch):
    async with dashboard("watchdog", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("k")
        await pilot.pause(0.02)
        await pilot.press("b")
        await pilot.pause(0.02)
        assert app.source.acts == [("beat", {"request": "req0412"}), ("pause", {})]


async def test_ctrl_c_says_how_to_quit_and_twice_quits(tmp_path, monkeypatch):
    async with dashboard("four", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("ctrl+c")
        assert "press q to quit" in plain(app.desk.lines(120, 36)).splitlines()[-1]
        assert app.left == []
        await pilot.press("ctrl+c")
        assert app.left[0][0] == "leave"


async def test_flow_and_job_control_stay_the_terminals(tmp_path, monkeypatch):
    bound = {name for _, key in CASES for name in key.keys.split(",")}
    assert not bound & set(NEVER)
    async with dashboard("four", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("space")
        before = seen(app)
        await pilot.press(*NEVER)
        assert seen(app) == before
        assert app.is_running


async def test_filter_sort_export_and_the_form(tmp_path, monkeypatch):
    async with dashboard("fifty", tmp_path, monkeypatch) as (app, pilot):
        await pilot.press("a", "slash", *"codex", "enter")
        names = [one.name for one in app.desk.view.sessions(app.desk.frame)]
        assert names
        assert all(name.startswith("codex") for name in names)
        await pilot.press("s", "S")
        assert [one.name for one in app.desk.view.sessions(app.desk.frame)] == sorted(names, reverse=True)
        await pilot.press("e")
        (path,) = tmp_path.iterdir()
        document = json.loads(path.read_text())
        assert document["schema"] == "ft.dashboard/1"
        assert len(document["sessions"]) == 50
        assert path.stat().st_mode & 0o777 == 0o600
        await pilot.press("n", "right", "tab", *"mine", "enter")
        await pilot.pause(0.02)
        assert app.left[-1][0] == "child"
        assert "'launch', 'codex', '--name', 'mine'" in app.left[-1][1]


async def test_what_the_canvas_shows_is_what_was_composed():
    async with dashboard() as (app, pilot):
        await pilot.press("space", "2")
        await pilot.pause(0.05)
        lines = app.desk.lines(120, 36)
        assert [app.canvas.render_line(y).text.rstrip() for y in range(1, 35)] == plain(lines).splitlines()[1:35]


@pytest.mark.parametrize("part", PARTS)
async def test_every_screen_comes_up_in_every_theme(part):
    async with dashboard(part=part) as (app, pilot):
        for _ in range(4):
            await pilot.press("T")
            await pilot.pause(0.01)
        assert app.is_running
        assert app.source.shown[-1] == part
