"""The requests: what each prompt was made of, where its time went, why a prefix broke, and what new tokens cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Explanation, Frame, Turn
from ftagent.dashboard.screens.chrome import clock
from ftagent.dashboard.screens.listing import Listing
from ftagent.dashboard.screens.view import Effect, Explain, Room, Say, View
from ftagent.dashboard.screens.waterfall import waterfall, why
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, clean, fill, line
from ftagent.dashboard.widgets.plot import Curve, plot
from ftagent.dashboard.widgets.tables import Cell, Column
from ftagent.dashboard.widgets.units import UNKNOWN, percent, seconds, tokens, whole

COLUMNS = (
    Column("TIME", 8, 8, 1),
    Column("SESSION", 8, 20, 0),
    Column("PROMPT", 6, 8, 0, ">"),
    Column("CACHED", 6, 8, 1, ">"),
    Column("NEW", 6, 8, 0, ">"),
    Column("TTFT", 6, 8, 0, ">"),
    Column("FORECAST", 8, 8, 5, ">"),
    Column("OUT", 5, 7, 2, ">"),
    Column("TPOT", 6, 7, 6, ">"),
    Column("END", 8, 11, 3),
    Column("REPLAYED", 8, 8, 8, ">"),
    Column("AHEAD", 6, 8, 7, ">"),
    Column("QUEUE", 6, 7, 9, ">"),
    Column("PREFILL", 7, 8, 10, ">"),
    Column("TIER", 5, 6, 11),
    Column("API", 5, 10, 12),
    Column("WHY", 12, 60, 13),
)
SORTS: tuple[tuple[str, Callable[[Turn], Any]], ...] = (
    ("time", lambda t: -(t.started_at or 0.0)),
    ("first token", lambda t: -(t.ttft_s or 0.0)),
    ("new tokens", lambda t: -((t.new_tokens or 0) + (t.replayed_tokens or 0))),
    ("session", lambda t: t.name.lower()),
    ("output", lambda t: -(t.output_tokens or 0)),
)


class Turns(View):
    part, title = "turns", "Turns"
    keys = (
        Key("x", "x", "explain the broken prefix", "view.explain"),
        Key("p", "p", "time to the first token against new tokens", "view.plot"),
    )
    hints = (
        ("Enter", "waterfall"),
        ("x", "explain"),
        ("p", "plot"),
        ("s", "sort"),
        ("/", "filter"),
        ("a", "all"),
        ("1", "overview"),
    )
    sorts = tuple(name for name, _ in SORTS)

    def __init__(self) -> None:
        super().__init__()
        self.plotting = False
        self.explained: Explanation | None = None

    def turns(self, frame: Frame) -> list[Turn]:
        """After the filter, in the order chosen; newest first unless asked."""
        shown = [t for t in frame.turns if self.matches(t.name, t.api, t.kind, t.ended, t.why, t.request)]
        shown.sort(key=SORTS[self.sort][1])
        return shown[::-1] if self.reversed else shown

    def ids(self, frame: Frame) -> Sequence[str]:
        return [turn.request for turn in self.turns(frame)]

    def session(self, frame: Frame) -> str | None:
        turn = self._selected(frame)
        return turn.session if turn else None

    def _selected(self, frame: Frame) -> Turn | None:
        shown = self.turns(frame)
        return shown[self.index(frame)] if shown else None

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        low = min(15, room.height // 2) if room.height >= 14 else 0
        blocks = self._table(frame, room.of(room.width, room.height - low))
        if low:
            blocks += (
                self._plot(frame, room.of(room.width, low))
                if self.plotting
                else self._waterfall(frame, room.of(room.width, low))
            )
        return fill(blocks, room.width, room.height)

    def _table(self, frame: Frame, room: Room) -> list[Line]:
        shown = self.turns(frame)
        none = f"none that match /{self.query}" if self.query else "no requests yet"
        return Listing(
            "Turns", COLUMNS, len(shown), self.index(frame), lambda n: _row(shown[n], room.glyphs), none,
            self.note(len(shown), len(frame.turns)), not self.plotting,
        ).lines(room)  # fmt: skip

    def _waterfall(self, frame: Frame, room: Room) -> list[Line]:
        turn = self._selected(frame)
        if turn is None:
            return box("Where the time went", (), room.width, room.height, room.glyphs)
        lines = waterfall(turn, room.width - 4, room.glyphs)
        lines += why(turn, self.explained, room.width - 4, room.glyphs)
        return box(
            f"Where the time went: {clean(turn.name)} {turn.request}",
            lines,
            room.width,
            room.height,
            room.glyphs,
            f"total {seconds(turn.total_s)}",
        )

    def _plot(self, frame: Frame, room: Room) -> list[Line]:
        cells, rows = room.width - 4, room.height - 3
        forecast, glyphs = frame.forecast, room.glyphs
        points = [
            (float((t.new_tokens or 0) + (t.replayed_tokens or 0)), t.ttft_s)
            for t in frame.turns
            if t.ttft_s is not None and t.new_tokens is not None
        ]
        curves = [
            Curve(
                [(float(p.new), p.p50_s) for p in forecast.curve], "." if glyphs.ascii else "·", "accent", joined=True
            )
        ]
        curves.append(Curve(points, glyphs.dot, "warn"))
        right = max([x for x, _ in points], default=max([p.new for p in forecast.curve], default=1.0))
        lines = plot(curves, cells, rows, tokens, seconds, right=float(right) * 1.05)
        mark = "~" if forecast.source == "bench" else ""
        words = f"{glyphs.dot} requests   line: forecast {mark}{forecast.source}, {whole(forecast.samples)} samples, p90 error {percent(forecast.p90_error)}"
        return box(
            "Time to the first token against tokens to compute",
            [*lines, line((words, "dim"))],
            room.width,
            room.height,
            glyphs,
            focus=True,
        )

    # what keys do

    def enter(self, frame: Frame) -> Effect:
        self.plotting = False
        return None

    def plot(self, frame: Frame) -> Effect:
        self.plotting = not self.plotting
        return None

    def explain(self, frame: Frame) -> Effect:
        """Of the selected request, where its prefix broke."""
        turn = self._selected(frame)
        if turn is None:
            return None
        self.plotting = False
        return (
            Explain(turn.request)
            if turn.broke_at is not None
            else Say("This prompt continued what was there: nothing broke.")
        )

    def told(self, answer: object) -> None:
        if isinstance(answer, Explanation):
            self.explained = answer
            self.chosen = answer.request

    def back(self) -> bool:
        if self.plotting or self.explained:
            self.plotting, self.explained = False, None
            return True
        return super().back()

    def export(self, frame: Frame) -> dict[str, Any]:
        return {
            "schema": "ft.dashboard/1",
            "now": frame.now,
            "turns": [asdict(t) for t in frame.turns],
            "forecast": asdict(frame.forecast),
        }


def _end(turn: Turn, glyphs: Glyphs) -> Line:
    if turn.ended is None:
        return line((f"{glyphs.running} runs", "accent"))
    if turn.error or turn.ended == "error":
        return line((f"{glyphs.bad} error", "bad"))
    if turn.ended in ("client_gone", "cancelled"):
        return line((f"{glyphs.warn} {turn.ended}", "warn"))
    return line((turn.ended + (" re-sent" if turn.resent else ""), "text"))


def _row(turn: Turn, glyphs: Glyphs) -> list[Cell]:
    broken = turn.broke_at is not None
    kind = f" ({clean(turn.kind)})" if turn.kind else ""
    return [
        clock(turn.started_at) if turn.started_at is not None else UNKNOWN,
        clean(turn.name) + kind,
        tokens(turn.prompt_tokens),
        tokens(turn.cached_tokens),
        line((f"{tokens(turn.new_tokens)}{glyphs.warn if broken else ''}", "warn" if broken else "text")),
        seconds(turn.ttft_s),
        seconds(turn.predicted_ttft_s),
        tokens(turn.output_tokens),
        seconds(turn.tpot_p50_s),
        _end(turn, glyphs),
        tokens(turn.replayed_tokens),
        tokens(turn.anticipated_tokens),
        seconds(turn.queue_s),
        seconds(turn.prefill_s),
        turn.tier or UNKNOWN,
        clean(turn.api),
        line((clean(turn.why), "dim")),
    ]
