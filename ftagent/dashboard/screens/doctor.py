"""What may stand in the way, why, and the one command that helps."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.model import Check, Frame
from ftagent.dashboard.screens.listing import Listing
from ftagent.dashboard.screens.view import Effect, Fix, Room, Say, View
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, clean, fill, line, wrap
from ftagent.dashboard.widgets.tables import Cell, Column

COLUMNS = (Column("", 6, 6, 0), Column("CHECK", 10, 28, 0), Column("FOUND", 16, 70, 1), Column("FIX", 10, 60, 5))


class DoctorView(View):
    part, title = "doctor", "Doctor"
    hints = (("Enter", "fix"), ("/", "filter"), ("e", "export"), ("1", "overview"))

    def checks(self, frame: Frame) -> list[Check]:
        """What is wrong first."""
        order = {"FAIL": 0, "WARN": 1, "OK": 2, "SKIP": 3}
        shown = [c for c in frame.checks or () if self.matches(c.id, c.status, c.text, c.fix)]
        return sorted(shown, key=lambda c: order.get(c.status, 4))

    def ids(self, frame: Frame) -> Sequence[str]:
        return [check.id for check in self.checks(frame)]

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        glyphs = room.glyphs
        if frame.checks is None:
            return box("Doctor", [line(("looking ...", "dim"))], room.width, room.height, glyphs)
        shown, low = self.checks(frame), 6
        bad = sum(c.status in ("WARN", "FAIL") for c in frame.checks)

        def cells(number: int) -> list[Cell]:
            check = shown[number]
            return [_mark(check, glyphs), clean(check.id), clean(check.text), line((clean(check.fix), "key"))]

        note = f"{bad} to look at" if bad else "nothing to do"
        none = f"none that match /{self.query}"
        above = Listing("Doctor", COLUMNS, len(shown), self.index(frame), cells, none, note)
        blocks = above.lines(room.of(room.width, room.height - low))
        one = shown[self.index(frame)] if shown else None
        detail: list[Line] = []
        if one is not None:
            said = f"{clean(one.text)}. {clean(one.cause)}" if one.cause else clean(one.text)
            detail = [line(text) for text in wrap(said, room.width - 4, 3)]
            word = "for you to do: " if one.by_hand else "fix: "
            detail.append(line((word, "dim"), (clean(one.fix), "key")) if one.fix else line(("nothing to fix", "dim")))
        return fill(
            blocks + box(clean(one.id) if one else "", detail, room.width, low, glyphs), room.width, room.height
        )

    def enter(self, frame: Frame) -> Effect:
        """The fix of the selected check, after a yes."""
        shown = self.checks(frame)
        one = shown[self.index(frame)] if shown else None
        if one is None or not one.fix:
            return Say("Nothing to fix here.")
        return Fix(one.fix, one.by_hand, clean(one.cause))


def _mark(check: Check, glyphs: Glyphs) -> Line:
    mark = {"OK": glyphs.good, "WARN": glyphs.warn, "FAIL": glyphs.bad}.get(check.status, glyphs.dot)
    role = {"OK": "good", "WARN": "warn", "FAIL": "bad"}.get(check.status, "dim")
    return line((f"{mark} {check.status}", role))
