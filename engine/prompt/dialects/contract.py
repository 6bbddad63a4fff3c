"""What a tool-call syntax must say about itself. A dialect file holds `DIALECT`, an object with these members."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.prompt.conversation import Tool
from engine.prompt.output import OutputParser

Pieces = list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Markers:
    """The text that opens and closes one kind of block."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What a model writes around the blocks of its answer, besides their markers."""

    thinking: tuple[str, str] = ("\n", "\n")  # inside the markers, before and behind the reasoning
    answer: str = "\n\n"  # between the reasoning and the rest
    text: str = ""  # before a text
    call: str = ""  # before a call's opening marker
    between: str = "\n"  # before a call that follows something else than reasoning
    apart: str | None = None  # between two calls; None: as `between`
    calls: tuple[str, str] = ("", "")  # around all calls of an answer
    end: str = ""  # behind an answer without calls, before the stop token
    ends: tuple[str, ...] = ()  # what ends a message besides the model's stop tokens


class Dialect(Protocol):
    name: str
    layout: Layout
    markers: Mapping[str, Markers]  # by span kind: thinking, tool_call, tool_result, tools

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        """`thinking_open`: the prompt already opened the thinking. `calls` False: tool syntax is plain text."""

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        """What stands between the tool-call markers: (text, is the dialect's own). Control tokens count as such in its own
        text only. `index` counts the calls of the answer."""

    def call_body(self, name: str, arguments: str) -> str:
        """The text of `call_parts`."""

    def call_id(self, call_id: str, name: str, index: int) -> str:
        """The id under which templates get the conversation's call number `index`, and its result."""

    def result_body(self, text: str) -> str:
        """What stands between the tool-result markers, for templates that know no tool results."""

    def definitions_body(self, tools: Sequence[Tool]) -> str:
        """What stands between the tools markers, for tools defined in the middle of a conversation."""

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        """A Lark expression for what stands between the tool-call markers in a call of `name`."""


class Lark(Protocol):
    """Writes the parts of a grammar."""

    def own(self, text: str) -> str:
        """The dialect's own text, control tokens as such."""

    def text(self, text: str) -> str:
        """Anybody else's text, as it stands."""

    def json(self, schema: dict[str, Any]) -> str:
        """A value of this schema."""

    def until(self, close: str) -> str:
        """Any text without `close`, the dialect's own, and then `close`; whitespace before it is optional."""


def pieces(text: str, control: Collection[str]) -> list[tuple[str, bool]]:
    """(piece, is a control token) of a dialect's own text; never for anybody else's."""
    found: list[tuple[str, bool]] = []
    pattern = "|".join(map(re.escape, sorted((token for token in control if token in text), key=len, reverse=True)))
    for piece in re.split(f"({pattern})", text) if pattern else [text]:
        if piece:
            found.append((piece, piece in control))
    return found


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
