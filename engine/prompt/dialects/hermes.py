"""JSON in `<tool_call>` tags, reasoning in `<think>` tags: the syntax of the Hermes and Qwen3 families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Markers, Pieces
from engine.prompt.dialects.json_scan import JsonScan, strict_object
from engine.prompt.dialects.reading import Ahead, Head, Mark, Maybe, Part, is_name
from engine.prompt.dialects.tagged import THINK, Calls, Scan, Tagged

_KEYS = {"name", "arguments", "parameters", "id", "type"}


class Hermes(Tagged):
    name = "hermes"
    markers: Mapping[str, Markers] = {
        "thinking": THINK,
        "tool_call": Markers("<tool_call>", "</tool_call>"),
        "tool_result": Markers("<tool_response>", "</tool_response>"),
        "tools": Markers("<tools>", "</tools>"),
    }
    openings: ClassVar = ("<tool_call",)  # without `>`: models drop it
    heads: ClassVar[tuple[tuple[Part, ...], ...]] = (("<tool_call", Mark.SPACE, Maybe(">"), Mark.SPACE, Ahead(("{",))),)
    closings: ClassVar = ("</tool_call>",)

    def scan(self, head: Head) -> Scan:
        return JsonScan(head.body)

    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        assert isinstance(scan, JsonScan)
        if scan.depth > 1 or scan.in_string:
            return None
        body = text[scan.start : scan.position] + "}" * scan.depth  # a forgotten last brace loses nothing
        call = named_call(strict_object(body, unique=True), whole=not scan.depth)
        return call and [call]

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        return [(f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n', False)]

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        head = lark.text(f'\n{{"name": {json.dumps(name)}, "arguments": ')
        return f"{head} {lark.json(parameters)} {lark.text('}' + chr(10))}"


def named_call(data: Any, whole: bool = True) -> tuple[str, dict[str, Any]] | None:
    """The call in `{"name": …, "arguments": …}`, or None. Not `whole`: it may be cut, so that arguments must be there."""
    if not isinstance(data, dict) or not data.keys() <= _KEYS:
        return None  # what has another name may have been the arguments
    name, arguments = data.get("name"), data.get("arguments", data.get("parameters"))
    if arguments is None and whole:
        arguments = {}
    if isinstance(arguments, str):
        arguments = strict_object(arguments, unique=True)
    if not isinstance(name, str) or not isinstance(arguments, dict) or not is_name(name.strip()):
        return None
    return name.strip(), arguments


DIALECT = Hermes()
