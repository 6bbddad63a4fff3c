"""One answer taking shape: events in, blocks out, and stop strings found on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.prompt.conversation import Block, Text, Thinking, ToolCall
from engine.prompt.output import Event, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart


class Answer:
    """Collects events into the blocks they spell. Adjacent deltas of one kind are one block."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        self._open: type[Text] | type[Thinking] | ToolCallStart | None = None
        self.tool_calls = 0

    def add(self, event: Event) -> None:
        """Take the next event of the answer."""
        if isinstance(event, ToolCallStart):
            self._close()
            self._open = event
            self.tool_calls += 1
        elif isinstance(event, ToolCallDelta):
            self._pieces.append(event.arguments)
        elif isinstance(event, ToolCallEnd):
            self._close()
        else:
            kind: type[Text] | type[Thinking] = Text if isinstance(event, TextDelta) else Thinking
            if self._open is not kind:
                self._close()
                self._open = kind
            self._pieces.append(event.text)

    def blocks(self) -> tuple[Block, ...]:
        """All blocks so far; ends the open one."""
        self._close()
        return tuple(self._blocks)

    def _close(self) -> None:
        text = "".join(self._pieces)
        if isinstance(self._open, ToolCallStart):
            start = self._open
            self._blocks.append(ToolCall(start.id, start.name, text, start.namespace))
        elif self._open is not None and text:
            self._blocks.append(self._open(text))
        self._open = None
        self._pieces = []


@dataclass(slots=True)
class StopStrings:
    """Cuts the visible text at the first stop string, holding back what may be the beginning of one."""

    strings: Sequence[str]
    hit: str | None = None
    _held: str = field(default="")

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """The events that may be shown. Once `hit` is set everything later is dropped."""
        if not self.strings:
            return list(events)
        shown: list[Event] = []
        for event in events:
            if self.hit is not None:
                break
            if isinstance(event, TextDelta):
                text = self._text(event.text)
                if text:
                    shown.append(TextDelta(text))
            else:
                shown += [*self.flush(), event]
        return shown

    def flush(self) -> list[Event]:
        """What is held back, when nothing can complete it any more."""
        held, self._held = self._held, ""
        return [TextDelta(held)] if held else []

    def _text(self, piece: str) -> str:
        text = self._held + piece
        # The first to be complete wins, the longer of two that end together: as if the text came in single characters.
        found = [(at + len(s), -len(s), s) for s in self.strings if (at := text.find(s)) >= 0]
        if found:
            end, size, self.hit = min(found)
            self._held = ""
            return text[: end + size]
        keep = max(_overlap(text, s) for s in self.strings)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
