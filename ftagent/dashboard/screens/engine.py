"""The engine itself: its state over time, settings and where each comes from, versions, crashes."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.model import Engine, Flag, Frame
from ftagent.dashboard.screens.chrome import clock, stale
from ftagent.dashboard.screens.listing import Listing
from ftagent.dashboard.screens.view import Room, View
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import bar
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, Span, beside, clean, fill, fit, line, wrap
from ftagent.dashboard.widgets.tables import Cell, Column
from ftagent.dashboard.widgets.units import UNKNOWN, age, joules, percent, seconds, tokens, whole

SETTINGS = (Column("SETTING", 10, 28, 0), Column("VALUE", 8, 32, 1), Column("FROM", 7, 14, 2))
PATH = ("stopped", "starting", "loading", "warming", "ready", "stopping")


class EngineView(View):
    part, title = "engine", "Engine"
    hints = (("K", "keep alive"), ("P", "pause"), ("Tab", "phases"), ("l", "logs"), ("d", "doctor"), ("1", "overview"))
    panes = 2

    def ids(self, frame: Frame) -> Sequence[str]:
        return [flag.name for flag in frame.engine.flags]

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        engine, glyphs = frame.engine, room.glyphs
        facts = [*_path(engine, room.width - 4, glyphs), (), *_facts(engine, room.width - 4)]
        if room.width < 100 and self.pane == 1:
            facts = facts[:3]  # what was is what is wanted
        top = min(len(facts) + 2, room.height)
        blocks = box("Engine", facts, room.width, top, glyphs, stale(engine.told, frame.now))
        rest = room.height - top
        if rest < 4:
            return fill(blocks, room.width, room.height)
        if room.width < 100:
            side = self._settings if self.pane == 0 else self._past
            return fill(blocks + side(frame, room.of(room.width, rest)), room.width, room.height)
        left = room.width // 2
        blocks += beside(
            self._settings(frame, room.of(left, rest)), self._past(frame, room.of(room.width - left, rest))
        )
        return fill(blocks, room.width, room.height)

    def _settings(self, frame: Frame, room: Room) -> list[Line]:
        flags, versions = frame.engine.flags, _versions(frame.engine)
        tail = ((), *versions) if room.height > len(versions) + 10 else ()
        here = self.pane == 0
        return Listing(
            "Settings and where they come from", SETTINGS, len(flags), self.index(frame), lambda n: _setting(flags[n]),
            "unknown", focus=here, marked=here, tail=tail,
        ).lines(room)  # fmt: skip

    def _past(self, frame: Frame, room: Room) -> list[Line]:
        """How workers ended, then the states before."""
        crashes = _crashes(frame.engine, frame.now, room.width - 4, room.glyphs)
        lines = [*crashes, (), *_phases(frame.engine, room.glyphs)]
        return box("Crashes and phases", lines, room.width, room.height, room.glyphs, "", self.pane == 1)


def _path(engine: Engine, cells: int, glyphs: Glyphs) -> list[Line]:
    """The states in their order with the present one marked; what is no station stands behind."""
    spans: list[Span] = []
    for number, state in enumerate(PATH):
        here = state == engine.state
        spans.append(Span(f"{glyphs.across}{glyphs.across} " if number else "", "dim"))
        spans.append(Span(f"[{state}] " if here else f"{state} ", "key" if here else "dim"))
    if engine.state not in PATH:
        spans.append(Span(f"  {glyphs.bad} {engine.state}", "bad"))
    lines: list[Line] = [tuple(span for span in spans if span.text)]
    if engine.progress is not None and engine.state not in ("ready", "stopped"):
        tail = f" {percent(engine.progress)}  {clean(engine.phase or '')}  ETA {seconds(engine.eta_s)}"
        lines.append(line(*bar(engine.progress, max(4, cells - len(tail)), glyphs, "warn"), tail))
    return lines


def _facts(engine: Engine, cells: int) -> list[Line]:
    left = f"{whole(engine.restarts)} so far, {whole(engine.restarts_left)} left before it stays down"
    rows = [
        ("model", f"{clean(engine.model or UNKNOWN)}{'   replies come from a script' if engine.scripted else ''}"),
        (
            "address",
            f"127.0.0.1:{engine.port if engine.port is not None else UNKNOWN}   pid {engine.pid or UNKNOWN}   worker {engine.worker_pid or UNKNOWN}",
        ),
        ("device", f"{clean(engine.device or UNKNOWN)}"),
        ("window", f"{tokens(engine.window_tokens)} of one session   KV {tokens(engine.kv_tokens)} of all"),
        (
            "requests",
            f"{whole(engine.running)} running, {whole(engine.waiting)} waiting{'   PAUSED: new ones wait' if engine.paused else ''}",
        ),
        ("machine", _machine(engine)),
        ("up", f"{seconds(engine.uptime_s)}   stops unused in {seconds(engine.stops_in_s)}"),
        ("restarts", left),
    ]
    lines = [line((f"{name:<10}", "dim"), text) for name, text in rows]
    for text, role in ((engine.code, "dim"), (engine.message, "bad"), (engine.hint, "key"), (engine.warning, "warn")):
        lines += [line((f"{'':<10}", "dim"), (part, role)) for part in wrap(clean(text or ""), cells - 10, 3)]
    lines += [line((f"{'cannot':<10}", "dim"), f"{clean(what)}: {clean(why)}") for what, why in engine.cannot]
    return lines


def _machine(engine: Engine) -> str:
    if engine.power_w is None and engine.temperature_c is None and engine.energy_j is None:
        return f"{UNKNOWN}   no meter of power or temperature can be read"
    heat = UNKNOWN if engine.temperature_c is None else f"{engine.temperature_c:.0f} C"
    power = UNKNOWN if engine.power_w is None else f"{engine.power_w:.0f} W"
    return f"{power}   {heat}   {joules(engine.energy_j)} since the start"


def _setting(flag: Flag) -> list[Cell]:
    return [clean(flag.name), clean(flag.value), flag.origin or UNKNOWN]


def _versions(engine: Engine) -> list[Line]:
    return [line((fit(clean(v.name), 12) + " ", "dim"), clean(v.value)) for v in engine.versions]


def _phases(engine: Engine, glyphs: Glyphs) -> list[Line]:
    rows = []
    for phase in engine.phases[-8:]:
        took = seconds(phase.seconds) if phase.seconds is not None else f"{glyphs.running} now"
        rows.append(
            line((f"{clock(phase.at)} ", "dim"), f"{fit(phase.state, 10)} {fit(clean(phase.phase), 14)} {took}")
        )
    return rows or [line(("no phases seen", "dim"))]


def _crashes(engine: Engine, now: float, cells: int, glyphs: Glyphs) -> list[Line]:
    lines: list[Line] = []
    for crash in reversed(engine.crashes[-5:]):
        again = (
            f"started again after {seconds(crash.restart_in_s)}" if crash.restart_in_s is not None else "stayed down"
        )
        lines.append(line((f"{glyphs.bad} {age(now - crash.at)} ago {clean(crash.code)}, {again}", "bad")))
        lines += [line((text, "dim")) for text in wrap(clean(crash.message), cells, 2)]
    return lines or [line((f"{glyphs.good} no crash", "good"))]
