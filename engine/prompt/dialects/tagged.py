"""Syntaxes with a marker before each call and a pair around the reasoning: all but harmony. What differs is data and, for the
body of a call, one of the scans beside this file.

A call is announced once it is complete and valid; anything else in its place stays text. Quoted in back-ticks it is no call, and
inside reasoning it is one only when the reasoning is never closed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Layout, Markers, Pieces, definition
from engine.prompt.dialects.prose import Prose
from engine.prompt.dialects.reading import Head, Part, Reader, Wait, open_suffix, walk_any
from engine.prompt.output import OutputParser, TextDelta, ThinkingDelta

THINK = Markers("<think>", "</think>")
Calls = list[tuple[str, dict[str, Any]]]  # name and arguments


class Scan(Protocol):
    """Walks the body of a call in text that is still arriving; `position` is where it stopped, `ended` that it is through."""

    position: int
    ended: bool

    def advance(self, text: str) -> None: ...


class Tagged(ABC):
    """A dialect (see contract). `openings` are the texts that begin a call or the section of all calls, `heads` what may stand
    before a call's body from there on, `closings` what is dropped behind a call (a missing last `>` is forgiven), `silent`
    what is dropped everywhere else."""

    name = ""
    layout = Layout()
    markers: Mapping[str, Markers] = {}
    openings: ClassVar[tuple[str, ...]] = ()
    heads: ClassVar[tuple[tuple[Part, ...], ...]] = ()
    closings: ClassVar[tuple[str, ...]] = ()
    silent: ClassVar[tuple[str, ...]] = ()

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        return TaggedParser(self, tools, thinking_open=thinking_open, calls=calls)

    @abstractmethod
    def scan(self, head: Head) -> Scan:
        """A scan of the body that begins at `head.body`."""

    @abstractmethod
    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        """The calls in a body that was scanned; None when it is malformed."""

    @abstractmethod
    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces: ...

    def call_body(self, name: str, arguments: str) -> str:
        return "".join(text for text, _ in self.call_parts(name, arguments))

    def call_id(self, call_id: str, name: str, index: int) -> str:
        return call_id

    @abstractmethod
    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str: ...

    def result_body(self, text: str) -> str:
        return f"\n{text}\n"

    def definitions_body(self, tools: Sequence[Tool]) -> str:
        return "\n" + "\n".join(json.dumps(definition(tool), ensure_ascii=False) for tool in tools) + "\n"


class TaggedParser(Reader):
    """See OutputParser. Whitespace around blocks is dropped: templates put it there, models echo it."""

    def __init__(self, syntax: Tagged, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> None:
        super().__init__(tools, calls)
        self._syntax = syntax
        self._think = syntax.markers["thinking"]
        self._thinking = thinking_open
        self._answered = False  # by text or a call: reasoning is over
        self._spoken = False
        self._after_call = False
        self._found: tuple[Head, Scan] | None = None
        self._prose = Prose()

    def _step(self, final: bool) -> bool:
        if self._after_call and not self._close_call(final):
            return False
        if not self._buffer:
            return False
        if self._found is not None:
            return self._call(final)
        position, marker = self._next()
        if not marker:
            keep = 0 if final else open_suffix(self._buffer, self._markers())
            self._say(len(self._buffer) - keep)
            return False
        if position:
            self._say(position)  # what was said decides whether the marker still counts
            return True
        if marker in self._syntax.silent and self._prose.quoted:
            self._say(len(marker))
            return True
        if marker in (self._think.open, self._think.close, *self._syntax.silent):
            self._buffer = self._buffer[len(marker) :]
            self._thinking = marker == self._think.open
            self._prose = Prose()
            return True
        head = None if self._prose.quoted else walk_any(self._syntax.heads, self._buffer, 0, final)
        if isinstance(head, Wait):
            return False
        if head is None:
            self._say(len(marker))
            return True
        return self._held_call(head, marker, final) if self._thinking else self._begin(head, final)

    def _next(self) -> tuple[int, str]:
        """The first marker in the buffer; an empty one behind its end when there is none."""
        found = ((p, -len(m), m) for m in self._markers() if (p := self._buffer.find(m)) >= 0)
        position, _, marker = min(found, default=(len(self._buffer), 0, ""))
        return position, marker

    def _markers(self) -> list[str]:
        markers = list(self._syntax.openings) if self._calls else []
        if self._thinking:
            return [*markers, self._think.close]
        if not self._answered:
            markers.append(self._think.open)
        return [*markers, *self._syntax.silent]

    def _say(self, length: int) -> None:
        """Move `length` characters from the buffer to the current thinking or text block."""
        text = self._prose.push(self._buffer[:length])
        self._buffer = self._buffer[length:]
        if text:
            self._spoken = self._spoken or not self._thinking
            self._answered = self._answered or not self._thinking
            self._events.append(ThinkingDelta(text) if self._thinking else TextDelta(text))

    def _held_call(self, head: Head, marker: str, final: bool) -> bool:
        """A call inside unfinished thinking counts only if the thinking is never closed."""
        end = self._buffer.find(self._think.close)
        if end >= 0:
            self._say(end)
            return True
        if not final:
            return False
        scan = self._syntax.scan(head)
        scan.advance(self._buffer)
        if self._syntax.read(self._buffer, head, scan, self._tools) is None:
            self._say(len(marker))
            return True
        self._thinking = False
        self._prose = Prose()
        return True

    def _begin(self, head: Head, final: bool) -> bool:
        self._found = head, self._syntax.scan(head)
        return self._call(final)

    def _call(self, final: bool) -> bool:
        assert self._found is not None
        head, scan = self._found
        scan.advance(self._buffer)
        if not scan.ended and not final:
            return False
        self._found = None
        calls = self._syntax.read(self._buffer, head, scan, self._tools)
        if calls is None:
            # What is left of an unfinished call may quote other calls in a string: none of it may run.
            self._say(max(scan.position, 1) if scan.ended else len(self._buffer))
            return True
        for name, arguments in calls:
            self._announce(name, arguments)
        self._answered = True
        self._buffer = self._buffer[scan.position :]
        self._after_call = True
        self._prose = Prose()
        return True

    def _close_call(self, final: bool) -> bool:
        """Drop a call's closing texts, whole or damaged; False when more text is needed."""
        while True:
            rest = self._buffer.lstrip()
            if not final and any(tag.startswith(rest) for tag in self._syntax.closings):
                return False
            found = next((tag for tag in self._syntax.closings if rest.startswith(tag.removesuffix(">"))), None)
            if found is None:
                break
            self._buffer = rest[len(found.removesuffix(">")) :].removeprefix(">")
        cut = any(tag.startswith(rest) for tag in self._syntax.closings)  # at the end of the answer
        self._buffer = "" if cut and final else rest
        self._after_call = False
        return True
