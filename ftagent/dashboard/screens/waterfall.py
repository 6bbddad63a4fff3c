"""One request: where its time went, and why its prefix broke."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.model import Explanation, Turn
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import shares
from ftagent.dashboard.widgets.cells import Line, Span, clean, line, width, wrap
from ftagent.dashboard.widgets.units import percent, rate, seconds, whole


def waterfall(turn: Turn, cells: int, glyphs: Glyphs) -> list[Line]:
    """The prompt in whole tokens; one line a stage, each beginning where the one before ended; what came of it."""
    replayed = f" + replayed {whole(turn.replayed_tokens)}" if turn.replayed_tokens else ""
    split = f"prompt {whole(turn.prompt_tokens)} = cached {whole(turn.cached_tokens)}{replayed} + new {whole(turn.new_tokens)}"
    ahead = f"   {whole(turn.anticipated_tokens)} computed ahead" if turn.anticipated_tokens else ""
    stages = {
        "render": turn.render_s,
        "queue": turn.queue_s,
        "restore": turn.restore_s,
        "prefill": turn.prefill_s,
        "decode": turn.decode_s,
    }
    widths = shares([value or 0.0 for value in stages.values()], max(8, cells - 20))
    lines, start = [line(split, (ahead, "good"))], 0
    for number, ((name, value), many) in enumerate(zip(stages.items(), widths, strict=True)):
        bar = (glyphs.full * many, f"tenant{number + 1}")
        lines.append(line((f"{name:<8} ", "dim"), f"{seconds(value):>7}  ", " " * start, bar))
        start += many
    facts = [
        f"first token {seconds(turn.ttft_s)}, forecast {seconds(turn.predicted_ttft_s)}",
        f"{whole(turn.output_tokens)} out",
    ]
    if turn.tpot_p50_s:
        facts.append(f"{rate(1 / turn.tpot_p50_s)} t/s")
    if turn.expert_hits and turn.expert_misses is not None:
        facts.append(f"experts hit {percent(turn.expert_hits / (turn.expert_hits + turn.expert_misses))}")
    facts.append(f"heartbeats {whole(turn.heartbeats)}")
    return [*lines, *(line(text) for text in _joined(facts, cells))]


def _joined(parts: Sequence[str], cells: int) -> list[str]:
    """In as few lines as they fit in."""
    lines = [parts[0]]
    for part in parts[1:]:
        if width(lines[-1]) + 3 + width(part) <= cells:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def why(turn: Turn, explained: Explanation | None, cells: int, glyphs: Glyphs) -> list[Line]:
    """The sentence, and after `x` the texts on both sides of the break."""
    role = "warn" if turn.broke_at is not None else "dim"
    mark = f"{glyphs.warn} " if turn.broke_at is not None else ""
    lines = [line((text, role)) for text in wrap(mark + clean(turn.error or turn.why), cells, 2)]
    if explained is None or explained.request != turn.request:
        return lines
    lines = [line((text, role)) for text in wrap(mark + clean(explained.why), cells, 2)]
    for word, text in (("was", explained.old), ("is", explained.new)):
        if text is not None:
            lines.append((Span(f"{word:<4}", "dim"), Span(clean(text), "head")))
    return lines
