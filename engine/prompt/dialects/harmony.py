"""OpenAI's harmony: messages with a channel and a recipient, as gpt-oss writes them. Reasoning goes to the channel `analysis`, a call
to the recipient `functions.NAME` and ends the answer; everything else is text.

A call is announced once its JSON is complete and valid; anything else in its place stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Layout, Markers, Pieces, definition
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.dialects.prose import Prose
from engine.prompt.dialects.reading import Reader, is_name, open_suffix
from engine.prompt.output import OutputParser, TextDelta, ThinkingDelta

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_FUNCTIONS = "functions."
_RECIPIENT, _CHANNEL_NAME = re.compile(r"to=([^\s<]+)"), re.compile(r"<\|channel\|>\s*(\w+)")
_HEADS = (_START, _CHANNEL, _MESSAGE, "to=")  # what a header begins with
_STOPS = (_END, _CALL, _RETURN, _START, _CHANNEL)  # what ends a message; the last two begin the next


class Harmony:
    name = "harmony"
    layout = Layout(
        thinking=("", ""),
        answer=f"{_START}assistant",
        text=f"{_CHANNEL}final{_MESSAGE}",
        call=f"{_CHANNEL}commentary",
        between=f"{_END}{_START}assistant",
        ends=(_END,),
    )
    markers: Mapping[str, Markers] = {
        "thinking": Markers(f"{_CHANNEL}analysis{_MESSAGE}", _END),
        "tool_call": Markers(f" to={_FUNCTIONS}", _CALL),
        "tool_result": Markers(f"{_START}{_FUNCTIONS}", _END),
        "tools": Markers("namespace functions {", "} // namespace functions"),
    }

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        return HarmonyParser(tools, thinking_open=thinking_open, calls=calls)

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        return [(name, False), (f" <|constrain|>json{_MESSAGE}", True), (arguments, False)]

    def call_body(self, name: str, arguments: str) -> str:
        return "".join(text for text, _ in self.call_parts(name, arguments))

    def call_id(self, call_id: str, name: str, index: int) -> str:
        return call_id

    def result_body(self, text: str) -> str:
        return f"tool to=assistant{_CHANNEL}commentary{_MESSAGE}{text}"

    def definitions_body(self, tools: Sequence[Tool]) -> str:
        return "\n" + "\n".join(json.dumps(definition(tool), ensure_ascii=False) for tool in tools) + "\n"

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        return f"{lark.text(name)} {lark.own(f' <|constrain|>json{_MESSAGE}')} {lark.json(parameters)}"


class HarmonyParser(Reader):
    """See OutputParser. Whitespace around messages is dropped. Text without a header is taken as text."""

    def __init__(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> None:
        super().__init__(tools, calls)
        # Of the message being read; "": its header; "loose": text without one.
        self._kind = "thinking" if thinking_open else ""
        self._recipient = ""
        self._prose = Prose()

    def _step(self, final: bool) -> bool:
        if self._kind == "":
            return self._head(final)
        stops = self._stops()
        position, stop = min(
            ((p, s) for s in stops if (p := self._buffer.find(s)) >= 0), default=(len(self._buffer), "")
        )
        if self._kind == "call":
            if stop or final:
                self._call(self._buffer[:position], bool(stop))
                self._leave(position, stop)
            return bool(stop)
        if not stop:
            position -= 0 if final else open_suffix(self._buffer, stops)
        self._say(self._buffer[:position])
        self._buffer = self._buffer[position:]
        if stop:
            self._leave(0, stop)
        return bool(stop)

    def _stops(self) -> Sequence[str]:
        if self._kind != "loose" or not self._calls:
            return _STOPS
        return (*_STOPS, f" to={_FUNCTIONS}")

    def _leave(self, position: int, stop: str) -> None:
        """Go on behind the message that ends at `position`."""
        consumed = len(stop) if stop in (_END, _CALL, _RETURN) else 0
        self._buffer = self._buffer[position + consumed :]
        self._kind, self._prose = "", Prose()

    def _head(self, final: bool) -> bool:
        head, message, body = self._buffer.partition(_MESSAGE)
        start = head.lstrip()
        unfinished = not message and not final and any(mark.startswith(start) for mark in _HEADS)
        if start and not start.startswith(_HEADS) and not unfinished:
            self._kind = "loose"
            return True
        if not message:
            return False  # at the end: a header without a message says nothing
        last = head.rpartition(_START)[2]
        channel, recipient = _CHANNEL_NAME.search(last), _RECIPIENT.search(last)
        self._buffer = body
        if recipient is not None and self._calls:
            self._kind, self._recipient = "call", recipient[1].removeprefix(_FUNCTIONS)
        else:
            self._kind = "thinking" if channel is not None and channel[1] == "analysis" else "text"
        return True

    def _say(self, text: str) -> None:
        if said := self._prose.push(text):
            self._events.append(ThinkingDelta(said) if self._kind == "thinking" else TextDelta(said))

    def _call(self, body: str, ended: bool) -> None:
        arguments = strict_object(body if body.strip() else "{}", unique=True)
        tool = self._tools.get(self._recipient)
        schema = tool.parameters if tool else {}
        # Nothing is an object without members, unless the answer was cut before the first of them.
        cut = not ended and (tool is None or bool(schema.get("properties")))
        missing = not body.strip() and (cut or bool(schema.get("required")))
        if arguments is None or not is_name(self._recipient) or missing:
            self._say(body)
            return
        self._announce(self._recipient, arguments)


DIALECT = Harmony()
