"""The engine's log: followed, by level, searched."""

from __future__ import annotations

from typing import Any

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Frame, LogLine
from ftagent.dashboard.screens.view import Effect, Room, Save, Say, View
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, Span, clean, line, wrap

LEVELS = ("all", "warning", "error")
SHORT = {"warning": "warn", "critical": "error"}
ROLES = {"warning": "warn", "error": "bad", "critical": "bad"}


class LogsView(View):
    part, title = "logs", "Logs"
    keys = (
        Key("f", "f", "follow, or stay", "view.follow"),
        Key("v", "v", "all, warnings and errors, errors", "view.level"),
        Key("n", "n", "next match", "view.next_match"),
        Key("N", "N", "match before", "view.match_before"),
        Key("w", "w", "wrap long lines", "view.wrap"),
        Key("S", "S", "save what is shown", "view.save", acting=True),
    )
    hints = (
        ("/", "search"),
        ("n N", "matches"),
        ("f", "follow"),
        ("v", "level"),
        ("w", "wrap"),
        ("S", "save"),
        ("o", "pager"),
        ("1", "overview"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.following = True
        self.wrapping = False
        self.floor = 0
        self.at = 0  # the last line shown, among those of the level, while it does not follow

    def shown(self, frame: Frame) -> list[LogLine]:
        if LEVELS[self.floor] == "all":
            return list(frame.logs)
        wanted = ("error", "critical") if LEVELS[self.floor] == "error" else ("warning", "error", "critical")
        return [one for one in frame.logs if one.level in wanted]

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        shown, rows = self.shown(frame), room.height - 2
        end = len(shown) if self.following else max(min(len(shown), rows), min(len(shown), self.at + 1))
        drawn: list[Line] = []
        for number in range(end - 1, -1, -1):
            if len(drawn) >= rows:
                break
            drawn[:0] = self._drawn(
                shown[number], room.width - 4, number == self.at and not self.following, room.glyphs.pointer
            )
        note = f"{'following' if self.following else f'at {min(self.at + 1, len(shown))}'}, {len(shown)} lines, {LEVELS[self.floor]}"
        if self.query:
            note += f", /{self.query} {len(self._matches(shown))} matches"
        return box(
            "Log of the engine",
            drawn[-rows:] or [line(("no lines", "dim"))],
            room.width,
            room.height,
            room.glyphs,
            note,
        )

    def _drawn(self, one: LogLine, cells: int, here: bool, mark: str) -> list[Line]:
        role = "select" if here else ROLES.get(one.level or "", "text")
        if self.query and self.matches(one.text):
            role = "select" if here else "key"
        head = f"{mark if here else ' '} {one.at or '':<8} {SHORT.get(one.level or '', one.level or ''):<5} "
        text = clean(one.text)
        if not self.wrapping:
            return [(Span(head, "dim"), Span(text, role))]
        parts = wrap(text, max(8, cells - len(head))) or [""]
        return [(Span(head if not n else " " * len(head), "dim"), Span(part, role)) for n, part in enumerate(parts)]

    def _matches(self, shown: list[LogLine]) -> list[int]:
        return [number for number, one in enumerate(shown) if self.query and self.matches(one.text)]

    def index(self, frame: Frame) -> int:
        return len(self.shown(frame)) - 1 if self.following else self.at

    def move(self, frame: Frame, by: int) -> None:
        many = len(self.shown(frame))
        self.at = max(0, min(many - 1, self.index(frame) + by))
        self.following = self.at >= many - 1

    # what keys do

    def follow(self, frame: Frame) -> Effect:
        self.at = self.index(frame)
        self.following = not self.following
        return None

    def level(self, frame: Frame) -> Effect:
        self.floor, self.following = (self.floor + 1) % len(LEVELS), True
        return None

    def wrap(self, frame: Frame) -> Effect:
        self.wrapping = not self.wrapping
        return None

    def next_match(self, frame: Frame) -> Effect:
        return self._jump(frame, 1)

    def match_before(self, frame: Frame) -> Effect:
        return self._jump(frame, -1)

    def _jump(self, frame: Frame, way: int) -> Effect:
        found = self._matches(self.shown(frame))
        if not found:
            return Say("Nothing matches." if self.query else "Search first: /")
        here = self.index(frame)
        ahead = [n for n in found if n > here] if way > 0 else [n for n in reversed(found) if n < here]
        self.at, self.following = (ahead[0] if ahead else found[0] if way > 0 else found[-1]), False
        return None

    def save(self, frame: Frame) -> Effect:
        """Of the level shown, as it was written."""
        return Save(
            "ft-engine.log", "".join(f"{one.at or ''} {one.level or ''} {one.text}\n" for one in self.shown(frame))
        )

    def export(self, frame: Frame) -> dict[str, Any]:
        return {
            "schema": "ft.dashboard/1",
            "now": frame.now,
            "logs": [{"at": o.at, "level": o.level, "text": o.text} for o in self.shown(frame)],
        }
