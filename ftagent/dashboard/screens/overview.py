"""Sessions, the turn in flight, memory, rates, anchors, what happened: everything at once, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Frame, InFlight, Part, Session
from ftagent.dashboard.screens import detail
from ftagent.dashboard.screens.chrome import stale
from ftagent.dashboard.screens.flight import turn_pane
from ftagent.dashboard.screens.panes import (
    anchors_pane,
    anchors_title,
    event_line,
    events_pane,
    memory_pane,
    rates_pane,
    totals_pane,
)
from ftagent.dashboard.screens.sessions import session_table
from ftagent.dashboard.screens.view import Effect, Explain, Go, Room, Run, Type, View
from ftagent.dashboard.theme import ASCII
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, Span, beside, clean, fill, line
from ftagent.dashboard.widgets.tables import window
from ftagent.dashboard.widgets.units import size

SORTS: tuple[tuple[str, Callable[[Session], Any]], ...] = (
    ("activity", lambda s: ()),
    ("name", lambda s: s.name.lower()),
    ("context", lambda s: -(s.context_tokens or 0)),
    ("first token", lambda s: -(s.ttft_last_s or 0.0)),
    ("cost", lambda s: -(s.cost.amount if s.cost else 0.0)),
)
PANES: dict[int, Part] = {1: "turns", 2: "memory", 3: "experts", 4: "anchors"}


class Overview(View):
    part, title = "overview", "Overview"
    hints = (
        ("n", "new"), ("Enter", "open"), ("r", "resume"), ("t", "turns"), ("m", "memory"), ("4", "experts"), ("c", "anchors"),
        ("l", "logs"), ("d", "doctor"), ("/", "filter"), ("a", "all"), ("Space", "pause"),
    )  # fmt: skip
    sorts = tuple(name for name, _ in SORTS)
    panes = 6

    def __init__(self) -> None:
        super().__init__()
        self.opened: str | None = None
        self.top = 0  # first line of the opened one

    def bound(self) -> tuple[Key, ...]:
        return detail.KEYS if self.opened else self.keys

    def hinted(self) -> tuple[tuple[str, str], ...]:
        return detail.HINTS if self.opened else self.hints

    def all_keys(self) -> tuple[Key, ...]:
        return detail.KEYS

    # what is shown

    def sessions(self, frame: Frame) -> list[Session]:
        """After the filter, in the order chosen; of this project alone unless asked, where it has any."""
        shown = list(frame.sessions)
        if not self.everywhere and any(one.here for one in shown):
            shown = [one for one in shown if one.here]
        shown = [one for one in shown if self.matches(one.name, one.agent, one.status, one.branch, one.project)]
        shown.sort(key=SORTS[self.sort][1])
        return shown[::-1] if self.reversed else shown

    def ids(self, frame: Frame) -> Sequence[str]:
        return [one.id for one in self.sessions(frame)]

    def session(self, frame: Frame) -> str | None:
        ids = self.ids(frame)
        return self.opened or (ids[self.index(frame)] if ids else None)

    def flying(self, frame: Frame) -> InFlight | None:
        """The selected session's request; without one the most pressing of all."""
        own = next((one for one in frame.in_flight if one.session == self.chosen), None)
        order = {"prefill": 0, "restore": 1, "queue": 2, "decode": 3}
        return own or min(frame.in_flight, key=lambda one: order.get(one.stage, 4), default=None)

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        opened = next((one for one in frame.sessions if one.id == self.opened), None)
        if opened is not None:
            return self._session(opened, frame, room)
        if room.width < 60:
            return self._table(frame, room, framed=False)
        if room.width < 100 or room.height < 24:
            return self._small(frame, room)
        return self._large(frame, room)

    # how it is laid out

    def _session(self, opened: Session, frame: Frame, room: Room) -> list[Line]:
        """The lines from `top` on; where there are more than room, the edge says which these are."""
        rows = room.height - 2
        every = detail.detail(opened, frame, room.of(room.width - 4, rows))
        top = max(0, min(self.top, len(every) - rows))
        note = stale(opened.told, frame.now)
        if len(every) > rows:
            note = f"{top + 1}-{top + rows} of {len(every)}, j k scroll"
        title = f"Session {clean(opened.name)}"
        return box(title, every[top : top + rows], room.width, room.height, room.glyphs, note)

    def move(self, frame: Frame, by: int) -> None:
        """Of one session the lines, else the rows."""
        opened = next((one for one in frame.sessions if one.id == self.opened), None)
        if opened is None:
            super().move(frame, by)
        else:
            every = detail.detail(opened, frame, Room(76, 22, ASCII))
            self.top = max(0, min(len(every) - 1, self.top + by))

    def _table(self, frame: Frame, room: Room, framed: bool = True) -> list[Line]:
        shown = self.sessions(frame)
        inner_rows = room.height - (3 if framed else 1)
        start, end = window(len(shown), self.index(frame), max(1, inner_rows))
        selected = self.index(frame) - start if shown else None
        cells = room.width - (4 if framed else 0)
        rows = session_table(shown[start:end], frame, cells, selected, room.glyphs)
        if not shown:
            rows = [*rows, line(("  none" + (f" that match /{self.query}" if self.query else ", press n"), "dim"))]
        if not framed:
            return fill(rows, room.width, room.height)
        where = "all projects" if self.everywhere or not frame.project else f"project {clean(frame.project)}"
        return box(f"Sessions ({where})", rows, room.width, room.height, room.glyphs, self.note(len(shown), len(frame.sessions)), self.pane == 0)  # fmt: skip

    def _pane(self, number: int, frame: Frame, room: Room) -> list[Line]:
        """Pane `number` (1 turn, 2 memory, 3 rates, 4 anchors, 5 events) with its frame."""
        inner, now = room.of(room.width - 4, room.height - 2), frame.now
        if number == 1:
            flying = self.flying(frame)
            title = f"Turn in flight: {clean(flying.name)}" if flying else "Turn in flight"
            more = f"1 of {len(frame.in_flight)}" if len(frame.in_flight) > 1 else ""
            return self._box(number, title, turn_pane(flying, frame, inner), room, more)
        if number == 2:
            of = f", {size(frame.memory.arena_bytes)} arena" if frame.memory.arena_bytes else ""
            return self._box(number, f"Memory{of}", memory_pane(frame, inner), room, stale(frame.memory.told, now))
        if number == 3:
            return self._box(number, "Rates, 10 min", rates_pane(frame, inner), room)
        if number == 4:
            return self._box(
                number, anchors_title(frame), anchors_pane(frame, inner), room, stale(frame.anchors.told, now)
            )
        return self._box(number, "Events", events_pane(frame, inner), room)

    def _box(self, number: int, title: str, lines: Sequence[Line], room: Room, note: str = "") -> list[Line]:
        return box(title, lines, room.width, room.height, room.glyphs, note, self.pane == number)

    def _small(self, frame: Frame, room: Room) -> list[Line]:
        events = 1 if frame.events and room.height > 14 else 0
        low = min(10, max(4, (room.height - events) // 2))
        top = self._table(frame, room.of(room.width, room.height - events - low))
        pane = self._pane(self.pane or 1, frame, room.of(room.width, low))
        last = [_event(frame, room)] if events else []
        return fill([*top, *pane, *last], room.width, room.height)

    def _large(self, frame: Frame, room: Room) -> list[Line]:
        if room.width >= 160:
            return self._wide(frame, room)
        left = room.width // 2
        right = room.width - left
        middle, low, folded = (10, 7, 0) if room.height >= 30 else (8, 6, 1)
        rest = room.height - middle - low
        events = folded or max(4, rest - max(6, len(self.sessions(frame)) + 3))
        table = rest - events
        blocks = self._table(frame, room.of(room.width, table))
        blocks += beside(self._pane(1, frame, room.of(left, middle)), self._pane(2, frame, room.of(right, middle)))
        blocks += beside(self._pane(3, frame, room.of(left, low)), self._pane(4, frame, room.of(right, low)))
        blocks += self._pane(5, frame, room.of(room.width, events)) if events > 1 else [_event(frame, room)]
        return fill(blocks, room.width, room.height)  # fmt: skip

    def _wide(self, frame: Frame, room: Room) -> list[Line]:
        third = room.width // 3
        sizes = (third, third, room.width - 2 * third)
        middle = 12
        low = max(8, (room.height - middle) // 3)
        table = min(room.height - middle - low, max(8, len(self.sessions(frame)) + 4))
        low = room.height - middle - table
        blocks = self._table(frame, room.of(room.width, table))
        blocks += beside(*(self._pane(n, frame, room.of(sizes[n - 1], middle)) for n in (1, 2, 3)))
        totals = box("All requests", totals_pane(frame, room.of(sizes[2] - 4, low - 2)), sizes[2], low, room.glyphs)
        blocks += beside(
            self._pane(4, frame, room.of(sizes[0], low)), self._pane(5, frame, room.of(sizes[1], low)), totals
        )
        return fill(blocks, room.width, room.height)

    # what keys do

    def enter(self, frame: Frame) -> Effect:
        """A pane opens its screen, that of the events the explanation of the newest break; else the session in full."""
        if self.pane in PANES:
            return Go(PANES[self.pane])
        if self.pane == 5:
            broken = next((e.request for e in reversed(frame.events) if e.level == "warn" and e.request), None)
            return Explain(broken) if broken else None
        self.opened, self.top = self.session(frame), 0
        return None

    def back(self) -> bool:
        if self.opened:
            self.opened = None
            return True
        return super().back()

    def fork(self, frame: Frame) -> Effect:
        one = self._one(frame)
        return Run(("launch", one.agent, "--fork", one.id), f"Fork {one.name}?") if one and one.agent else None

    def rename(self, frame: Frame) -> Effect:
        one = self._one(frame)
        return Type(f"New name of {one.name}", ("sessions", "rename", one.id)) if one else None

    def delete(self, frame: Frame) -> Effect:
        one = self._one(frame)
        return (
            Run(("sessions", "rm", one.id), f"Delete our record of {one.name}? The agent's own files stay.")
            if one
            else None
        )

    def _one(self, frame: Frame) -> Session | None:
        wanted = self.session(frame)
        return next((one for one in frame.sessions if one.id == wanted), None)

    def export(self, frame: Frame) -> dict[str, Any]:
        return {"schema": "ft.dashboard/1", **asdict(frame)}


def _event(frame: Frame, room: Room) -> Line:
    """The newest one, where there is a line for it."""
    return (Span(" "), *event_line(frame.events[-1], room.of(room.width - 1, 1))) if frame.events else ()
