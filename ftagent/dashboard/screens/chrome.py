"""What surrounds every screen: header, banners, footer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ftagent.dashboard.model import Alert, Engine, Frame, Told
from ftagent.dashboard.screens.view import Room, View
from ftagent.dashboard.watchdog import AMBER, RED
from ftagent.dashboard.widgets.cells import (
    Line,
    Span,
    both_ends,
    clean,
    fill,
    fit_line,
    line,
    line_width,
    painted,
    to_ascii,
    width,
)
from ftagent.dashboard.widgets.units import age, of_size, percent, seconds

DOWN = ("unreachable", "stopped", "crashed")
BUSY = ("starting", "listening", "loading", "warming", "stopping")
STALE_S = 5.0


@dataclass(frozen=True, slots=True)
class Chrome:
    """What the person did to the display as a whole."""

    frozen_s: float | None = None
    message: str = ""
    typing: str | None = None  # a filter that is being typed


def stale(told: Told, now: float) -> str:
    """How old, when that is worth knowing."""
    old = told.age_s(now)
    return f"{age(old)} old" if old is not None and old > STALE_S else ""


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def compose(frame: Frame, view: View, room: Room, chrome: Chrome | None = None) -> list[Line]:
    """The whole terminal: `room.height` lines of `room.width` cells."""
    chrome = chrome or Chrome()
    top = header(frame, room) if room.height > 6 else []
    for banner in banners(frame, chrome, room):
        top.append(banner)
    bottom = [footer(frame, view, room, chrome)] if room.height > 3 else []
    top = top[: max(0, room.height - len(bottom) - 1)]
    body = view.lines(frame, room.of(room.width, room.height - len(top) - len(bottom)))
    lines = fill([*top, *body, *bottom], room.width, room.height)
    return to_ascii(lines) if room.glyphs.ascii else lines


def engine_word(engine: Engine, now: float, glyphs_good: str, glyphs_bad: str, glyphs_run: str) -> Span:
    """State as glyph and word, and for how long."""
    state = engine.state.upper()
    if engine.state == "ready":
        return Span(
            f"{glyphs_good} {state} {seconds(engine.uptime_s) if engine.uptime_s is not None else ''}".rstrip(), "good"
        )
    if engine.state in DOWN:
        when = f" {age(now - engine.stopped_at)} ago" if engine.stopped_at is not None else ""
        return Span(f"{glyphs_bad} {state}{when}", "bad")
    progress = f" {percent(engine.progress)}" if engine.progress is not None else ""
    eta = f" ETA {seconds(engine.eta_s)}" if engine.eta_s is not None else ""
    phase = f" {engine.phase}" if engine.phase and engine.phase != engine.state else ""
    return Span(f"{glyphs_run} {state}{phase}{progress}{eta}", "warn")


def header(frame: Frame, room: Room) -> list[Line]:
    """One line, two below 100 cells, one again below 60."""
    engine, glyphs = frame.engine, room.glyphs
    state = engine_word(engine, frame.now, glyphs.good, glyphs.bad, glyphs.running)
    name = line((" ft  ", "title"), (clean(engine.model or "no model"), "head"), "  ", state)
    if engine.paused:
        name = (*name, Span(f"  {glyphs.warn} PAUSED", "warn"))
    facts: list[Line] = []
    if frame.source != "live":
        facts.append(line((clean(frame.source), "warn")))
    if frame.readonly:
        facts.append(line(("read-only", "dim")))
    if engine.port is not None:
        facts.append(line((f":{engine.port}", "dim")))
    if engine.waiting is not None:
        facts.append(line(f"q:{engine.waiting}"))
    facts.extend(_memories(engine))
    end = line((" " + clock(frame.now), "text"), (f"  v{engine.version}" if engine.version else "", "dim"), " ")
    if room.width < 60:
        return [fit_line(name, room.width)]
    if room.width < 100:
        second = _join(facts, room.width - 2, "  ")
        return [both_ends(name, end, room.width), fit_line((Span(" "), *second), room.width)]
    space = room.width - line_width(name) - line_width(end) - 4
    return [both_ends((*name, Span("   "), *_join(facts, space, "  ")), end, room.width)]


def _memories(engine: Engine) -> list[Line]:
    lines: list[Line] = []
    for fill_of in engine.memory:
        if fill_of.used_bytes is None and fill_of.total_bytes is None:
            continue
        share = fill_of.share
        role = "text" if share is None or share < AMBER else "warn" if share < RED else "bad"
        mark = "" if role != "bad" else "!"
        lines.append(line((f"{clean(fill_of.name)} {of_size(fill_of.used_bytes, fill_of.total_bytes)}{mark}", role)))
    heat = [f"{engine.temperature_c:.0f}C"] if engine.temperature_c is not None else []
    power = [f"{engine.power_w:.0f}W"] if engine.power_w is not None else []
    return [*lines, line(" ".join([*heat, *power]))] if heat or power else lines


def _join(parts: list[Line], cells: int, gap: str) -> Line:
    """As many as there is room for, the first first."""
    done: Line = ()
    for part in parts:
        more = (*done, Span(gap), *part) if done else part
        if line_width(more) > cells:
            break
        done = more
    return done


def banners(frame: Frame, chrome: Chrome, room: Room) -> list[Line]:
    """Rescue first, then what is wrong with the engine, then what the person did."""
    lines = [one for alert in frame.alerts[:2] for one in _alert(alert, frame, room)]
    engine = frame.engine
    if engine.state in DOWN:
        when = f" {age(frame.now - engine.stopped_at)} ago" if engine.stopped_at is not None else ""
        words = {"unreachable": "engine does not answer", "crashed": "engine crashed"}.get(
            engine.state, "engine stopped"
        )
        why = f": {clean(engine.message)}" if engine.message else ""
        press = "" if frame.readonly or engine.state != "stopped" else ", press n"
        lines.append(fit_line(line((f" {room.glyphs.bad} {words}{when}{press}{why}", "bad")), room.width))
        if engine.hint and engine.state == "crashed":
            lines.append(fit_line(line(("   ", "bad"), (clean(engine.hint), "key")), room.width))
    elif engine.warning:
        lines.append(fit_line(line((f" {room.glyphs.warn} {clean(engine.warning)}", "warn")), room.width))
    if chrome.frozen_s is not None:
        text = f" FROZEN {chrome.frozen_s:.0f} s   data still recorded, Space goes on "
        lines.append(fit_line((Span(text, "frozen"),), room.width))
    return lines


def _alert(alert: Alert, frame: Frame, room: Room) -> list[Line]:
    """In one line, or its keys in a second."""
    role = "banner" if alert.level == "red" else "warn"
    keys = "" if frame.readonly else "".join(f"   [{key}] {does}" for key, does in alert.keys)
    text = f" {room.glyphs.bad if alert.level == 'red' else room.glyphs.warn} {clean(alert.text)}"
    texts = [text + keys] if width(text + keys) <= room.width or not keys else [text, keys]
    return [painted(fit_line((Span(one),), room.width), role) for one in texts]


def footer(frame: Frame, view: View, room: Room, chrome: Chrome) -> Line:
    """A message, the filter being typed, or the keys that matter here."""
    if chrome.typing is not None:
        return fit_line(line((" filter: ", "key"), (clean(chrome.typing), "text"), ("_", "key"), ("   Enter keeps it, Esc clears it", "dim")), room.width)  # fmt: skip
    if chrome.message:
        return fit_line(line((f" {clean(chrome.message)}", "head")), room.width)
    acting = {shown for key in view.bound() if key.acting for shown in key.shown.split()} | {"n", "r", "A", "X"}
    done: Line = (Span(" "),)
    always = line(("?", "key"), (" help  ", "dim"), ("q", "key"), (" quit ", "dim"))
    for key, word in view.hinted():
        if frame.readonly and key in acting:
            continue
        more = (*done, Span(key, "key"), Span(f" {word}  ", "dim"))
        if line_width(more) + line_width(always) > room.width:
            break
        done = more
    return fit_line((*done, *always), room.width)
