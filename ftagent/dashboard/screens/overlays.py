"""What lies above a screen and takes the keys: help, a question, a word to type. Drawn in lines as everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ftagent.dashboard.keys import GLOBAL, Key
from ftagent.dashboard.model import Frame
from ftagent.dashboard.screens.view import Effect, Room, View
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import (
    Line,
    Span,
    clean,
    cut,
    fit,
    fit_line,
    line,
    line_width,
    to_ascii,
    width,
    wrap,
)


class Overlay:
    """`done` once it is to go away."""

    done = False

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        """A box that fits into `room`."""
        raise NotImplementedError

    def key(self, key: str, character: str | None, frame: Frame) -> Effect:
        """A key pressed while it is there."""
        raise NotImplementedError

    def paste(self, text: str) -> None:
        """Text pasted while it is there."""


def above(under: Sequence[Line], over: Sequence[Line], room: Room) -> list[Line]:
    """`over` in the middle of `under`."""
    lines = list(under)
    over = to_ascii(over) if room.glyphs.ascii else over
    cells = line_width(over[0]) if over else 0
    left, top = (room.width - cells) // 2, max(0, (room.height - len(over)) // 2)
    for number, one in enumerate(over[: room.height]):
        lines[top + number] = (
            *_part(lines[top + number], 0, left),
            *one,
            *_part(lines[top + number], left + cells, room.width),
        )
    return lines


def _part(of: Line, first: int, end: int) -> Line:
    """The cells from `first` to `end`; of a wide character that lies on an edge a blank is left."""
    done: list[Span] = []
    at = 0
    for span in of:
        text = ""
        for character in span.text:
            size = width(character)
            if at >= first and at + size <= end:
                text += character
            elif at < end and at + size > first:
                text += " " * (min(at + size, end) - max(at, first))
            at += size
        if text:
            done.append(Span(text, span.role))
    return fit_line(tuple(done), end - first) if end > first else ()


class Help(Overlay):
    """The keys as they are bound, of the screen first."""

    def __init__(self, view: View, readonly: bool) -> None:
        self.view, self.readonly, self.first = view, readonly, 0

    def rows(self) -> list[Line]:
        own = shown_keys(self.view.bound(), self.readonly)
        others = shown_keys(GLOBAL, self.readonly)
        rows = [line((self.view.title, "title")), *map(_help_row, own)] if own else []
        return [*rows, line(("Everywhere", "title")), *map(_help_row, others)]

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        rows = self.rows()
        cells, columns = min(room.width, 118), 2 if room.width >= 112 else 1
        if columns == 2:
            half = (len(rows) + 1) // 2
            left, right = rows[:half], [*rows[half:], *[()] * (half - len(rows[half:]))]
            rows = [(*fit_line(a, 58), *b) for a, b in zip(left, right, strict=True)]
        height = min(room.height, len(rows) + 2)
        self.first = max(0, min(self.first, len(rows) - height + 2))
        more = "any key closes" if len(rows) + 2 <= room.height else "j k scroll, any other key closes"
        return box("Keys", rows[self.first :], cells, height, room.glyphs, more, focus=True)

    def key(self, key: str, character: str | None, frame: Frame) -> Effect:
        if key in ("j", "down", "k", "up", "pagedown", "pageup"):
            self.first += {"j": 1, "down": 1, "k": -1, "up": -1, "pagedown": 10, "pageup": -10}[key]
        else:
            self.done = True
        return None


def shown_keys(keys: Sequence[Key], readonly: bool) -> list[Key]:
    """Without the acting ones where the dashboard only reads."""
    return [key for key in keys if not (readonly and key.acting)]


def _help_row(key: Key) -> Line:
    return line((f" {fit(key.shown, 14)}", "key"), key.does)


class Confirm(Overlay):
    """y or Enter calls `yes`; every other key is a no."""

    def __init__(self, question: str, yes: Callable[[], None]) -> None:
        self.question, self.yes = question, yes

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        cells = min(room.width, 70)
        rows = [line((text, "head")) for text in wrap(clean(self.question), cells - 4)]
        rows += [(), line(("y", "key"), " yes   ", ("n", "key"), " no")]
        return box("Sure?", rows, cells, min(room.height, len(rows) + 2), room.glyphs, focus=True)

    def key(self, key: str, character: str | None, frame: Frame) -> Effect:
        self.done = True
        if key in ("y", "Y", "enter"):
            self.yes()
        return None


class Prompt(Overlay):
    """A word for `then`."""

    def __init__(self, question: str, then: Callable[[str], None]) -> None:
        self.question, self.then, self.text = question, then, ""

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        cells = min(room.width, 70)
        shown = self.text if width(self.text) < cells - 8 else "~" + self.text[-(cells - 10) :]
        rows = [line((clean(self.question), "head")), (), line((cut(shown, cells - 6), "text"), ("_", "key"))]
        return box("", rows, cells, min(room.height, 5), room.glyphs, "Enter, or Esc", focus=True)

    def key(self, key: str, character: str | None, frame: Frame) -> Effect:
        if key == "escape":
            self.done = True
        elif key == "enter":
            self.done = True
            if self.text.strip():
                self.then(self.text.strip())
        else:
            self.text = edited(self.text, key, character)
        return None

    def paste(self, text: str) -> None:
        self.text += clean(text.replace("\n", " "))


def edited(text: str, key: str, character: str | None) -> str:
    """After one key of a line editor."""
    if key == "backspace":
        return text[:-1]
    if key == "ctrl+u":
        return ""
    if key == "ctrl+w":
        return text.rstrip().rpartition(" ")[0]
    return text + character if character and character.isprintable() else text
