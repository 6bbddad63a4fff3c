"""The turn in flight: what its prompt is made of, how far it is, how long its agent still waits."""

from __future__ import annotations

from ftagent.dashboard.model import Frame, InFlight
from ftagent.dashboard.screens.chrome import BUSY
from ftagent.dashboard.screens.sessions import watchdog_role
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import bar
from ftagent.dashboard.widgets.cells import Line, clean, line, width
from ftagent.dashboard.widgets.units import UNKNOWN, age, limit, percent, rate, seconds, tokens, whole

BAR = 44


def turn_pane(flying: InFlight | None, frame: Frame, room: Room) -> list[Line]:
    """Lines for `room`; without a request what the engine does instead."""
    if flying is None:
        return _nothing_flies(frame, room)
    lines = [*_loading(frame, room), *_split(flying, room.width), *_stage(flying, room)]
    beats = f"heartbeats {whole(flying.heartbeats)}"
    beats += f", last {age(flying.beat_age_s)} ago" if flying.beat_age_s is not None else ""
    retried = "   retried" if flying.retried else ""
    prefilling = flying.prefill_tps is not None and flying.stage != "decode"
    speed = f"   prefill {rate(flying.prefill_tps, ' t/s')}" if prefilling else ""
    lines.append(line(beats, (retried, "warn"), speed))
    lines.append(_patience(flying, room.glyphs))
    dog = flying.watchdog
    if dog.forecast_p50_s is not None and flying.stage != "decode":
        text = f"forecast first token in p50 {seconds(dog.forecast_p50_s)}  p95 {seconds(dog.forecast_p95_s)}"
        lines.append(line((text, "dim")))
    return lines


def _split(flying: InFlight, cells: int) -> list[Line]:
    """What the prompt is made of, in one line or two."""
    cached, prompt = flying.cached_tokens, flying.prompt_tokens
    hit = f" ({percent(cached / prompt, 1)})" if cached is not None and prompt else ""
    first = f"prompt {whole(prompt)} = cached {whole(cached)}{hit}"
    second = f" + replayed {whole(flying.replayed_tokens)}" if flying.replayed_tokens else ""
    second += f" + new {whole(flying.new_tokens)}"
    ahead = f"   {whole(flying.anticipated_tokens)} computed ahead" if flying.anticipated_tokens else ""
    if width(first + second) <= cells:
        return [line(first + second), *([line((ahead.strip(), "good"))] if ahead else [])]
    return [line(first), line(second, (ahead, "good"))]


def _stage(flying: InFlight, room: Room) -> list[Line]:
    """The times behind it, the progress of what it is at."""
    glyphs = room.glyphs
    gap = f" {glyphs.down} "
    restore = (
        f"restore {clean(flying.tier)} {seconds(flying.restore_s)}"
        if flying.tier
        else f"restore {seconds(flying.restore_s)}"
    )
    before = [f"queue {seconds(flying.queue_s)}", restore]
    if flying.stage == "decode":
        first = f"first token {seconds(flying.ttft_s)} (forecast {seconds(flying.predicted_ttft_s)})"
        rest = f"   {whole(flying.output_tokens)} tokens out   {seconds(flying.elapsed_s)}"
        return [
            line(gap.join([*before, first])),
            line((f"{glyphs.running} decode {rate(flying.decode_tps, ' t/s')}", "good"), rest),
        ]
    if flying.stage == "queue":
        return [line((f"{glyphs.dot} queued for {seconds(flying.elapsed_s)}", "warn"))]
    many = f" {whole(flying.done_tokens)}/{whole(flying.todo_tokens)}" if flying.done_tokens is not None else ""
    text = gap.join([*before, f"{flying.stage} {seconds(flying.elapsed_s)}"])
    if width(text + many) > room.width:
        many = f" {tokens(flying.done_tokens)}/{tokens(flying.todo_tokens)}"
    lines = [line(text + many)]
    if flying.progress is not None:
        tail = f" {percent(flying.progress)}  ETA {seconds(flying.eta_s)}"
        lines.append(line(*bar(flying.progress, max(4, min(BAR, room.width - len(tail))), glyphs), tail))
    return lines


def _patience(flying: InFlight, glyphs: Glyphs) -> Line:
    dog = flying.watchdog
    if dog.limit_s is None:
        return line(("watchdog: no limit known", "dim"))
    words = {"amber": f"{glyphs.warn} half gone", "red": f"{glyphs.bad} nearly gone", "ok": f"{glyphs.good} ok"}
    agent = f"{clean(flying.agent)} " if flying.agent else ""
    margin = f"  margin {seconds(dog.margin_s)} " if dog.margin_s is not None else "  "
    miss = ", will miss" if dog.will_miss else ""
    return line(
        f"watchdog: {agent}{limit(dog.limit_s)}{margin}",
        (words.get(dog.level or "", "") + miss, watchdog_role(dog)),
    )


def _loading(frame: Frame, room: Room) -> list[Line]:
    """How far the engine is, while it is on its way up or down."""
    engine, glyphs = frame.engine, room.glyphs
    if engine.state not in BUSY:
        return []
    lines = [line((f"{glyphs.running} {engine.state} {clean(engine.phase or '')}".rstrip(), "warn"))]
    if engine.progress is not None:
        tail = f" {percent(engine.progress)}  ETA {seconds(engine.eta_s)}"
        lines.append(line(*bar(engine.progress, max(4, min(BAR, room.width - len(tail))), glyphs, "warn"), tail))
    return lines


def _ways_on(frame: Frame) -> list[Line]:
    """For who comes here before an engine runs."""
    last = f", as before with {clean(frame.engine.model)}" if frame.engine.model else ""
    ways = [] if frame.readonly else [("n", f"starts an agent, and the engine with it{last}")]
    ways += [("r", "goes on with a session")] if frame.sessions and not frame.readonly else []
    ways += [("d", "looks for what may stand in the way")]
    return [(), *(line((f"{key}  ", "key"), text) for key, text in ways)]


def _nothing_flies(frame: Frame, room: Room) -> list[Line]:
    engine, glyphs = frame.engine, room.glyphs
    if engine.state in BUSY:
        return _loading(frame, room)
    if engine.state != "ready":
        lines = [line((f"{glyphs.bad} {engine.state}", "bad"), (f"  {engine.code}" if engine.code else "", "dim"))]
        lines += [line(clean(text)) for text in (engine.message, engine.hint) if text]
        return lines if engine.state == "crashed" else [*lines, *_ways_on(frame)]
    lines = [line((f"{glyphs.dot} nothing runs", "dim"))]
    if frame.turns:
        last = frame.turns[-1]
        when = age(frame.now - last.started_at) if last.started_at is not None else UNKNOWN
        first = f"first token {seconds(last.ttft_s)}, {whole(last.output_tokens)} out"
        lines += [line(f"last: {clean(last.name)} {when} ago, {first}"), line((clean(last.why), "dim"))]
    return lines
