"""What every screen is: a function from a frame, and what the person chose, to lines; keys that answer with an effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Act, Frame, Part
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.cells import Line, width


@dataclass(frozen=True, slots=True)
class Room:
    """The cells that a screen has."""

    width: int
    height: int
    glyphs: Glyphs

    def of(self, width: int, height: int) -> Room:
        return Room(width, height, self.glyphs)


@dataclass(frozen=True, slots=True)
class Ask:
    """Do `act` after a yes to `question`."""

    question: str
    act: Act
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explain:
    """Fetch why this request's prefix broke; the screen gets it by `told`."""

    request: str


@dataclass(frozen=True, slots=True)
class Predict:
    """Fetch what this change of memory would give; the screen gets it by `told`."""

    label: str
    asked: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """Leave the screen to `ft` with these arguments, after a yes where there is a `question`."""

    arguments: tuple[str, ...]
    question: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """Leave the screen to this command of a check, after a yes; `by_hand`: it is copied, for the person's own shell."""

    command: str
    by_hand: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Type:
    """Ask for a word and run `ft` with it behind these arguments."""

    question: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """Run `ft` with these arguments, which change nothing, and show what it prints in the form that asked, so wide."""

    arguments: tuple[str, ...]
    columns: int = 80


@dataclass(frozen=True, slots=True)
class Go:
    """Another screen."""

    part: Part


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the person."""

    text: str


@dataclass(frozen=True, slots=True)
class Save:
    """Text for a file of this name beside where the dashboard was started."""

    name: str
    text: str


Effect = Ask | Explain | Predict | Run | Fix | Type | Preview | Go | Say | Save | None


class View:
    """One screen. Holds what the person chose, nothing of a frame; `lines` is pure."""

    part: ClassVar[Part]
    title: ClassVar[str]
    keys: ClassVar[tuple[Key, ...]] = ()
    hints: ClassVar[tuple[tuple[str, str], ...]] = ()
    sorts: ClassVar[tuple[str, ...]] = ()
    panes: ClassVar[int] = 1

    def __init__(self) -> None:
        self.chosen: str | None = None
        self.query = ""
        self.sort = 0
        self.reversed = False
        self.pane = 0
        self.everywhere = False

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        """`room.height` lines of `room.width` cells."""
        raise NotImplementedError

    def bound(self) -> tuple[Key, ...]:
        """The keys of this screen in its present state; they win over the global ones."""
        return self.keys

    def hinted(self) -> tuple[tuple[str, str], ...]:
        """(key, word) for the footer, the most useful first."""
        return self.hints

    def all_keys(self) -> tuple[Key, ...]:
        """Of every state of this screen."""
        return self.keys

    def ids(self, frame: Frame) -> Sequence[str]:
        """What can be selected, in the order shown."""
        return ()

    def index(self, frame: Frame) -> int:
        """Of the selected row among `ids`; 0 where it is gone."""
        ids = self.ids(frame)
        return ids.index(self.chosen) if self.chosen in ids else 0

    def move(self, frame: Frame, by: int) -> None:
        ids = self.ids(frame)
        if ids:
            self.chosen = ids[max(0, min(len(ids) - 1, self.index(frame) + by))]

    def session(self, frame: Frame) -> str | None:
        """The id of the session that session keys mean here."""
        return None

    def enter(self, frame: Frame) -> Effect:
        return None

    def back(self) -> bool:
        """Leave what is open within the screen, or the filter; False: nothing was."""
        if self.query:
            self.query = ""
            return True
        return False

    def told(self, answer: object) -> None:
        """What an Explain or a Predict brought."""

    def export(self, frame: Frame) -> dict[str, Any]:
        """What is shown, as data."""
        return {"schema": "ft.dashboard/1", "now": frame.now, self.part: asdict(frame)[self.part]}

    def matches(self, *texts: str | None) -> bool:
        return not self.query or any(self.query.lower() in text.lower() for text in texts if text)

    def note(self, count: int, total: int) -> str:
        """Filter, order and how many, for the edge of a box."""
        parts = [f"{count} of {total}" if count != total else str(total)]
        if self.query:
            parts.append(f"/{self.query}")
        if self.sorts and (self.sort or self.reversed):
            parts.append(f"by {self.sorts[self.sort]}{' reversed' if self.reversed else ''}")
        return " ".join(parts)


def two_columns(left: Sequence[Line], right: Sequence[Line]) -> list[Line]:
    return [(*a, *b) for a, b in zip(left, right, strict=True)]


def widest(texts: Sequence[str]) -> int:
    return max(map(width, texts), default=0)
