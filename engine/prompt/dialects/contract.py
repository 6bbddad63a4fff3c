"""What a tool-call syntax must say about itself. A dialect file holds `DIALECT`, an object with these members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.prompt.conversation import Tool
from engine.prompt.output import OutputParser


@dataclass(frozen=True, slots=True)
class Markers:
    """The text that opens and closes one kind of block."""

    open: str
    close: str


class Dialect(Protocol):
    name: str
    markers: Mapping[str, Markers]  # by span kind: thinking, tool_call, tool_result, tools

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        """`thinking_open`: the prompt already opened the thinking. `calls` False: tool syntax is plain text."""

    def call_body(self, name: str, arguments: str) -> str:
        """What stands between the tool-call markers."""

    def result_body(self, text: str) -> str:
        """What stands between the tool-result markers, for templates that know no tool results."""

    def definitions_body(self, tools: Sequence[Tool]) -> str:
        """What stands between the tools markers, for tools defined in the middle of a conversation."""

    def call_grammar(self, name: str, parameters: dict[str, Any]) -> str:
        """A Lark expression for what stands between the tool-call markers in a call of `name`."""


def visible_name(tool: Tool) -> str:
    """The name the model sees: namespaces become a prefix, so that equal names in two of them stay apart."""
    return full_name(tool.namespace, tool.name)


def full_name(namespace: str, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def definition(tool: Tool) -> dict[str, Any]:
    """A tool in the shape chat templates expect."""
    return {
        "type": "function",
        "function": {"name": visible_name(tool), "description": tool.description, "parameters": tool.parameters},
    }
