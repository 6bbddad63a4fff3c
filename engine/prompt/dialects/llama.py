"""Llama 3: a call is the whole answer, one JSON object with `name` and `parameters`, perhaps behind `<|python_tag|>`. An object
that begins an answer is a call only when it names one of the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Layout, Markers, Pieces
from engine.prompt.dialects.hermes import Hermes
from engine.prompt.dialects.reading import Ahead, Head, Mark, Maybe
from engine.prompt.dialects.tagged import Calls, Scan, TaggedParser
from engine.prompt.output import OutputParser

_TAG = "<|python_tag|>"
_OPEN = '{"name": '


class Llama(Hermes):
    name = "llama"
    layout = Layout(between=_TAG)
    markers: Mapping[str, Markers] = {**Hermes.markers, "tool_call": Markers(_OPEN, "}")}
    openings: ClassVar = (_TAG,)
    heads: ClassVar = (
        (
            Maybe(_TAG),
            Mark.SPACE,
            Mark.BODY,
            "{",
            Mark.SPACE,
            Ahead(('"name"', '"type"', '"function"', '"parameters"')),
        ),
    )
    closings: ClassVar = (";",)

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        return LlamaParser(self, tools, thinking_open=thinking_open, calls=calls)

    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        calls = super().read(text, head, scan, tools)
        if calls and not text.startswith(_TAG) and calls[0][0] not in tools:
            return None
        return calls

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        return [(f'{json.dumps(name, ensure_ascii=False)}, "parameters": {arguments}', False)]

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        head = json.dumps(name, ensure_ascii=False) + ', "parameters": '
        return f"{lark.text(head)} {lark.json(parameters)}"


class LlamaParser(TaggedParser):
    def _next(self) -> tuple[int, str]:
        """As long as nothing was said, an object counts as the beginning of a call."""
        start = len(self._buffer) - len(self._buffer.lstrip())
        if self._calls and not self._thinking and not self._spoken and self._buffer.startswith("{", start):
            return start, "{"
        return super()._next()


DIALECT = Llama()
