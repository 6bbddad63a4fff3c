"""Calls that are a name and then the argument object: what several syntaxes have between their own markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Pieces
from engine.prompt.dialects.json_scan import JsonScan, strict_object
from engine.prompt.dialects.reading import Head, is_name
from engine.prompt.dialects.tagged import Calls, Scan, Tagged


class Prefixed(Tagged):
    """`around`: what stands before the name, between it and the arguments, and behind them."""

    around: ClassVar[tuple[str, str, str]] = ("", "", "")

    def scan(self, head: Head) -> Scan:
        return JsonScan(head.body)

    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        assert isinstance(scan, JsonScan)
        if scan.depth > (1 if scan.ended else 0) or scan.in_string:
            return None
        body = (
            text[scan.start : scan.position] + "}" * scan.depth
        )  # only a marker behind it tells that nothing is missing
        arguments, name = strict_object(body, unique=True), self.plain_name(head.fields["name"])
        return None if arguments is None or not is_name(name) else [(name, arguments)]

    def plain_name(self, name: str) -> str:
        """The tool's name in what stands in the name's place."""
        return name

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        before, between, behind = (part.replace("{index}", str(index)) for part in self.around)
        return [(before, True), (name, False), (between, True), (arguments, False), (behind, True)]

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        before, between, behind = (lark.own(part.replace("{index}", "0")) for part in self.around)
        return f"{before} {lark.text(name)} {between} {lark.json(parameters)} {behind}"
