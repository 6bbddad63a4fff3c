"""JSON in `<tool_call>` tags, reasoning in `<think>` tags: the syntax of the Hermes and Qwen families.

A call is announced once its JSON is complete and valid, so that no client ever holds half an argument object; anything
else between the tags stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Layout, Markers, definition, visible_name
from engine.prompt.dialects.json_scan import JsonScan, strict_object
from engine.prompt.dialects.prose import Prose
from engine.prompt.output import (
    Event,
    OutputParser,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    new_call_id,
)

_THINK, _THINK_END = "<think>", "</think>"
_CALL, _CALL_END = "<tool_call", "</tool_call"  # without `>`: models drop it
CALL_HEAD = re.compile(r"<tool_call\s*>?\s*")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


class Scan(Protocol):
    """Walks the body of a call in text that is still arriving; `position` is where it stopped, `ended` that it is through."""

    position: int
    ended: bool

    def advance(self, text: str) -> None: ...


class Hermes:
    name = "hermes"
    layout = Layout()
    markers: Mapping[str, Markers] = {
        "thinking": Markers(_THINK, _THINK_END),
        "tool_call": Markers("<tool_call>", "</tool_call>"),
        "tool_result": Markers("<tool_response>", "</tool_response>"),
        "tools": Markers("<tools>", "</tools>"),
    }

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        return HermesParser(tools, thinking_open=thinking_open, calls=calls)

    def call_head(self, name: str) -> str:
        return ""

    def call_body(self, name: str, arguments: str) -> str:
        return f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n'

    def result_body(self, text: str) -> str:
        return f"\n{text}\n"

    def definitions_body(self, tools: Sequence[Tool]) -> str:
        return "\n" + "\n".join(json.dumps(definition(tool), ensure_ascii=False) for tool in tools) + "\n"

    def call_grammar(self, name: str, parameters: dict[str, Any]) -> str:
        head = json.dumps(f'\n{{"name": {json.dumps(name)}, "arguments": ')
        return f"{head} %json {json.dumps(parameters)} {json.dumps('}' + chr(10))}"


class HermesParser:
    """See OutputParser. Whitespace around blocks is dropped: templates put it there, models echo it."""

    def __init__(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> None:
        self._tools = {visible_name(tool): tool for tool in tools}
        self._calls = calls
        self._thinking = thinking_open
        self._answered = False
        self._after_call = False
        self._buffer = ""
        self._scan: Scan | None = None
        self._prose = Prose()
        self._count = 0
        self._events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> list[Event]:
        return self._run(final=True)

    def _run(self, final: bool) -> list[Event]:
        self._events = []
        while self._buffer and self._step(final):
            pass
        return self._events

    def _step(self, final: bool) -> bool:
        """Consume something certain from the buffer; False when more text is needed."""
        if self._after_call and not self._close_call(final):
            return False
        if not self._buffer:
            return False
        markers = self._markers()
        position, marker = min(
            ((p, m) for m in markers if (p := self._buffer.find(m)) >= 0), default=(len(self._buffer), "")
        )
        if not marker:
            keep = 0 if final else open_suffix(self._buffer, markers)
            self._say(len(self._buffer) - keep)
            return False
        if position:
            self._say(position)  # what was said decides whether the marker still counts
            return True
        if marker == _CALL:
            return self._held_call(final) if self._thinking else self._call(final)
        self._buffer = self._buffer[len(marker) :]
        self._thinking = marker == _THINK
        self._prose = Prose()
        return True

    def _markers(self) -> list[str]:
        markers = [_CALL] if self._calls else []
        if self._thinking:
            markers.append(_THINK_END)
        elif not self._answered:
            markers.append(_THINK)
        return markers

    def _say(self, length: int) -> None:
        """Move `length` characters from the buffer to the current thinking or text block."""
        text = self._prose.push(self._buffer[:length])
        self._buffer = self._buffer[length:]
        if text:
            self._answered = self._answered or not self._thinking
            self._events.append(ThinkingDelta(text) if self._thinking else TextDelta(text))

    def _scanner(self, start: int) -> Scan:
        return JsonScan(start)

    def _start(self, final: bool) -> int:
        """Where the call's body starts in the buffer; -1: unknown yet; -2: this is no call."""
        if self._prose.quoted:
            return -2
        head = CALL_HEAD.match(self._buffer)
        assert head is not None
        if head.end() == len(self._buffer):
            return -2 if final else -1
        return head.end() if self._buffer[head.end()] == "{" else -2

    def _held_call(self, final: bool) -> bool:
        """A call inside unfinished thinking counts only if the thinking is never closed."""
        start = self._start(final)
        if start == -1:
            return False
        end = self._buffer.find(_THINK_END)
        if start < 0 or end >= 0:
            self._say(end if end >= 0 and start >= 0 else len(_CALL))
            return True
        if not final:
            return False
        scan = self._scanner(start)
        scan.advance(self._buffer)
        if self._parse(scan) is None:
            self._say(len(_CALL))
            return True
        self._thinking = False
        self._prose = Prose()
        return True

    def _call(self, final: bool) -> bool:
        if self._scan is None:
            start = self._start(final)
            if start < 0:
                if start == -2:
                    self._say(len(_CALL))
                return start == -2
            self._scan = self._scanner(start)
        scan = self._scan
        scan.advance(self._buffer)
        if not scan.ended and not final:
            return False
        self._scan = None
        call = self._parse(scan)
        if call is None:
            # What is left of an unfinished call may quote other calls in a string: none of it may run.
            self._say(scan.position if scan.ended else len(self._buffer))
            return True
        self._emit(*call)
        self._buffer = self._buffer[scan.position :]
        self._after_call = True
        self._prose = Prose()
        return True

    def _parse(self, scan: Scan) -> tuple[str, str] | None:
        """Name and argument text of a complete call, or None when it is malformed."""
        assert isinstance(scan, JsonScan)
        if scan.depth > 1 or scan.in_string:
            return None
        body = self._buffer[scan.start : scan.position] + "}" * scan.depth  # a forgotten last brace loses nothing
        data = strict_object(body)
        if data is None:
            return None
        name = data.get("name")
        arguments = data.get("arguments", data.get("parameters"))
        if arguments is None and scan.depth:
            return None  # cut before the arguments came
        if isinstance(arguments, str):
            arguments = strict_object(arguments)
            if arguments is None:
                return None
        elif arguments is None:
            arguments = {}
        if not isinstance(name, str) or not isinstance(arguments, dict) or not _NAME.fullmatch(name.strip()):
            return None
        return name.strip(), argument_text(arguments)

    def _emit(self, name: str, arguments: str) -> None:
        tool = self._tools.get(name)
        index = self._count
        self._count += 1
        self._answered = True
        start = (
            ToolCallStart(index, new_call_id(), tool.name, tool.namespace)
            if tool
            else ToolCallStart(index, new_call_id(), name)
        )
        self._events += [start, ToolCallDelta(index, arguments), ToolCallEnd(index)]

    def _close_call(self, final: bool) -> bool:
        """Drop a call's closing tag, whole or damaged; False when more text is needed."""
        rest = self._buffer.lstrip()
        if rest.startswith(_CALL_END):
            rest = rest[len(_CALL_END) :].lstrip()
            if not rest and not final:
                return False
            rest = rest.removeprefix(">")
        elif _CALL_END.startswith(rest):
            if not final:
                return False
            rest = ""
        self._buffer = rest
        self._after_call = False
        return True


def open_suffix(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that may grow into a marker."""
    longest = max(map(len, markers), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-size:]) for marker in markers):
            return size
    return 0


def argument_text(value: Any) -> str:
    """JSON that can travel as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate escape cannot travel as UTF-8
        return json.dumps(value)
    return text


DIALECT = Hermes()
