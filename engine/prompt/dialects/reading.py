"""What the parsers of all syntaxes share: feeding text, announcing calls, and reading the fixed text around a call while it arrives."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import visible_name
from engine.prompt.output import Event, ToolCallDelta, ToolCallEnd, ToolCallStart, new_call_id

_LONGEST_FIELD = 128
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


class Reader(ABC):
    """An OutputParser around `_step`, which consumes something certain from `_buffer` and says whether to go on."""

    def __init__(self, tools: Sequence[Tool], calls: bool) -> None:
        self._tools = {visible_name(tool): tool for tool in tools}
        self._calls = calls
        self._buffer = ""
        self._count = 0
        self._events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> list[Event]:
        return self._run(final=True)

    def _run(self, final: bool) -> list[Event]:
        self._events = []
        while self._step(final):
            pass
        return self._events

    @abstractmethod
    def _step(self, final: bool) -> bool:
        """Consume something certain from the buffer; False when more text is needed."""

    def _announce(self, name: str, arguments: dict[str, Any]) -> None:
        """A whole call at once, so that no client ever holds half an argument object."""
        tool, index = self._tools.get(name), self._count
        self._count += 1
        name, namespace = (tool.name, tool.namespace) if tool else (name, "")
        start = ToolCallStart(index, new_call_id(), name, namespace)
        self._events += [start, ToolCallDelta(index, argument_text(arguments)), ToolCallEnd(index)]


class Mark(Enum):
    """Parts of a head that are no literal text."""

    SPACE = "any whitespace"
    BODY = "where the body begins"


@dataclass(frozen=True, slots=True)
class Maybe:
    """Text that may be missing."""

    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A run of `characters`, a regular expression of one of them, kept under `name`."""

    name: str
    characters: str = r"[A-Za-z0-9_.:/-]"


@dataclass(frozen=True, slots=True)
class Ahead:
    """One of these texts follows; it is not consumed."""

    texts: tuple[str, ...]


Part = str | Mark | Maybe | Field | Ahead


@dataclass(frozen=True, slots=True)
class Head:
    """What was read. `body` is where the body begins: at the mark, or behind the last part."""

    body: int
    end: int
    fields: dict[str, str]


class Wait(Enum):
    WAIT = "more text decides"


WAIT = Wait.WAIT


def walk(parts: Sequence[Part], text: str, at: int, final: bool) -> Head | Wait | None:
    """Read `parts` at `at`. None: they do not stand there. WAIT: what there is may become either; never when `final`.
    The result is the same for every longer text."""
    fields: dict[str, str] = {}
    body = -1
    unsure = None if final else WAIT
    for part in parts:
        if part is Mark.BODY:
            body = at
        elif part is Mark.SPACE:
            while at < len(text) and text[at].isspace():
                at += 1
            if at == len(text) and not final:
                return WAIT
        elif isinstance(part, Field):
            match = re.compile(f"{part.characters}*").match(text, at)
            end = match.end() if match else at
            if end - at > _LONGEST_FIELD:
                return None
            if end == len(text):
                return unsure
            if end == at:
                return None
            fields[part.name] = text[at:end].strip()
            at = end
        elif isinstance(part, Ahead):
            if not text.startswith(part.texts, at):
                return unsure if any(_begins(one, text, at) for one in part.texts) else None
        elif isinstance(part, Maybe):
            if text.startswith(part.text, at):
                at += len(part.text)
            elif _begins(part.text, text, at) and not final:
                return WAIT
        else:
            assert isinstance(part, str)
            if not text.startswith(part, at):
                return unsure if _begins(part, text, at) else None
            at += len(part)
    return Head(at if body < 0 else body, at, fields)


def walk_any(heads: Sequence[Sequence[Part]], text: str, at: int, final: bool) -> Head | Wait | None:
    """The first of the heads that stands there."""
    for parts in heads:
        found = walk(parts, text, at, final)
        if found is not None:
            return found
    return None


def _begins(part: str, text: str, at: int) -> bool:
    """Whether the text ends inside `part`."""
    return len(text) - at < len(part) and part.startswith(text[at:])


def open_suffix(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that may grow into a marker."""
    longest = max(map(len, markers), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-size:]) for marker in markers):
            return size
    return 0


def is_name(text: object) -> bool:
    """Whether a tool can have this name."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def argument_text(value: Any) -> str:
    """JSON that can travel as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate escape cannot travel as UTF-8
        return json.dumps(value)
    return text
