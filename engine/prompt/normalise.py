"""From a conversation to the message list a chat template takes: one function per thing templates disagree about.

Client text travels as `Leaf`s, so that the renderer can find it again in the template's output; everything else in a
message is template text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.prompt.conversation import (
    Block,
    Conversation,
    Media,
    Message,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from engine.prompt.dialects.contract import Dialect, full_name, visible_name
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.template import Traits

_SYSTEM_NOTE = "[system message]\n"
_EMPTY_ERROR = "[the tool failed without output]"
_INLINE_THINKING = re.compile(r"\s*<think>\n?(.*?)\n?</think>\s*", re.DOTALL)
_DEFERRED_HEADING = "\n\nThese tools can be called from now on:\n"


@dataclass(frozen=True, slots=True)
class Leaf:
    """Client text of one block. `message` and `block` index the conversation; `kind` is the span's."""

    text: str
    message: int
    block: int
    kind: str


Part = str | Leaf


@dataclass(slots=True)
class Call:
    """A tool call the template spells. `arguments` is a JSON object."""

    id: str
    name: Leaf
    arguments: dict[str, object]


@dataclass(slots=True)
class Turn:
    """One message as the template sees it. `blocks` are the conversation's blocks that it stands for."""

    role: Role
    content: list[Part] = field(default_factory=list)
    reasoning: list[Part] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    call_id: str = ""
    name: str = ""
    blocks: list[Block] = field(default_factory=list)


def turns_of(conversation: Conversation, traits: Traits, dialect: Dialect) -> list[Turn]:
    """The turns in order. Position is kept: nothing moves to another place in the conversation."""
    builder = _Builder(conversation, traits, dialect)
    for index, message in enumerate(conversation.messages):
        builder.add(index, message)
    turns = _merge_leading_system(builder.turns)
    turns = _merge_assistant(turns)
    if not traits.text_beside_thinking:
        turns = [_text_as_thinking(turn) for turn in turns]
    if not traits.text_beside_calls:
        turns = [replace(turn, content=[]) if turn.calls else turn for turn in turns]
    if not traits.calls_together:
        turns = [part for turn in turns for part in _one_call_each(turn)]
    if not traits.system_anywhere:
        turns = _system_as_user(turns)
    if not traits.user_repeated:
        turns = _merge_users(turns)
    return turns


class _Builder:
    def __init__(self, conversation: Conversation, traits: Traits, dialect: Dialect) -> None:
        self.turns: list[Turn] = []
        self._traits = traits
        self._dialect = dialect
        self._deferred = {visible_name(t): t for t in conversation.tools if t.deferred} if traits.tools else {}
        self._call_names = {
            b.id: full_name(b.namespace, b.name)
            for m in conversation.messages
            for b in m.blocks
            if isinstance(b, ToolCall)
        }

    def add(self, index: int, message: Message) -> None:
        role: Role = "user" if message.role == "tool" else message.role
        turn = Turn(role)
        for number, block in enumerate(message.blocks):
            if isinstance(block, ToolResult):
                if turn.blocks:
                    self.turns.append(turn)
                self.turns.append(self._result(index, number, block))
                turn = Turn(role)
                continue
            if isinstance(block, Thinking) and (block.opaque or not block.text.strip()):
                continue
            for piece in _split_inline_thinking(block) if message.role == "assistant" else [block]:
                self._append(turn, index, number, piece)
                turn.blocks.append(piece)
        if turn.blocks or not message.blocks:
            self.turns.append(turn)

    def _append(self, turn: Turn, index: int, number: int, block: Block) -> None:
        if isinstance(block, Thinking):
            self._thinking(turn, Leaf(block.text, index, number, "thinking"))
        elif isinstance(block, ToolCall):
            self._call(turn, index, number, block)
        else:
            text = block.text if isinstance(block, Text) else _media_note(block)
            kind = turn.role if turn.role != "assistant" else "text"
            if turn.content and turn.role != "assistant":
                turn.content.append("\n")
            turn.content.append(Leaf(text, index, number, kind))

    def _thinking(self, turn: Turn, leaf: Leaf) -> None:
        if self._traits.reasoning:
            turn.reasoning += ["\n", leaf] if turn.reasoning else [leaf]
            return
        if not self._traits.thinking_in_text:
            return
        marks, layout = self._dialect.markers["thinking"], self._dialect.layout
        before, behind = layout.thinking
        turn.content += [marks.open + before, leaf, behind + marks.close + layout.answer]

    def _call(self, turn: Turn, index: int, number: int, block: ToolCall) -> None:
        name = full_name(block.namespace, block.name)
        arguments = strict_object(block.arguments or "{}")
        if self._traits.tool_calls and arguments is not None:
            turn.calls.append(Call(block.id, Leaf(name, index, number, "tool_call"), arguments))
            return
        # A template can only spell an object: what the client sent instead is served as it came.
        text = block.arguments if arguments is None else json.dumps(arguments, ensure_ascii=False)
        marks = self._dialect.markers["tool_call"]
        around = self._dialect.layout.calls
        body = [
            part if own else Leaf(part, index, number, "tool_call")
            for part, own in self._dialect.call_parts(name, text)
            if part
        ]
        turn.content += ["\n" if turn.content else "", around[0] + marks.open, *body, marks.close + around[1]]

    def _result(self, index: int, number: int, result: ToolResult) -> Turn:
        name = self._call_names.get(result.call_id, result.name)
        text = "\n".join(p.text if isinstance(p, Text) else _media_note(p) for p in result.content)
        if result.is_error and not text.strip():
            text = _EMPTY_ERROR
        definitions = self._definitions(name, text)
        if self._traits.tool_role:
            leaf = Leaf(text, index, number, "tool_result")
            return Turn("tool", [leaf, *definitions], call_id=result.call_id, name=name, blocks=[result])
        marks = self._dialect.markers["tool_result"]
        leaf = Leaf(self._dialect.result_body(text), index, number, "tool_result")
        return Turn("user", [marks.open, leaf, marks.close, *definitions], blocks=[result])

    def _definitions(self, name: str, text: str) -> list[Part]:
        """Deferred tools that this result names for the first time, spelled out behind it."""
        named = [t for key, t in self._deferred.items() if key == name or _mentions(text, key)]
        for tool in named:
            del self._deferred[visible_name(tool)]
        if not named:
            return []
        marks = self._dialect.markers["tools"]
        body = Leaf(self._dialect.definitions_body(named), -1, -1, "tools")
        return [_DEFERRED_HEADING + marks.open, body, marks.close]


def head_tools(tools: Iterable[Tool]) -> list[Tool]:
    """The tools the template renders in the head."""
    return [tool for tool in tools if not tool.deferred]


def _mentions(text: str, name: str) -> bool:
    return name in text and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _media_note(block: Block) -> str:
    kind = block.kind if isinstance(block, Media) else "part"
    return f"[{kind} omitted: this model reads text only]"


def _split_inline_thinking(block: Block) -> Sequence[Block]:
    """Clients without a place for reasoning send it back inside the text."""
    match = _INLINE_THINKING.match(block.text) if isinstance(block, Text) else None
    if match is None or not isinstance(block, Text):
        return [block]
    thinking, text = match.group(1), block.text[match.end() :]
    blocks: list[Block] = [Thinking(thinking)] if thinking.strip() else []
    return blocks + ([Text(text)] if text else [])


def _merge_leading_system(turns: list[Turn]) -> list[Turn]:
    count = next((i for i, t in enumerate(turns) if t.role != "system"), len(turns))
    return turns if count < 2 else [_joined(turns[:count], "\n\n"), *turns[count:]]


def _merge_assistant(turns: list[Turn]) -> list[Turn]:
    """Some dialects spell one answer as several items."""
    return _merge_runs(turns, "assistant", "")


def _merge_users(turns: list[Turn]) -> list[Turn]:
    return _merge_runs(turns, "user", "\n\n")


def _merge_runs(turns: list[Turn], role: Role, glue: str) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and turn.role == role == merged[-1].role:
            merged[-1] = _joined([merged[-1], turn], glue)
        else:
            merged.append(turn)
    return merged


def _joined(turns: Sequence[Turn], glue: str) -> Turn:
    result = replace(turns[0], content=[], reasoning=[], calls=[], blocks=[])
    for turn in turns:
        if glue and result.content and turn.content:
            result.content.append(glue)
        if result.reasoning and turn.reasoning:
            result.reasoning.append("\n")
        result.content += turn.content
        result.reasoning += turn.reasoning
        result.calls += turn.calls
        result.blocks += turn.blocks
    return result


def _text_as_thinking(turn: Turn) -> Turn:
    """For templates that refuse both in a turn with calls."""
    if not (turn.calls and turn.content and turn.reasoning):
        return turn
    return replace(turn, content=[], reasoning=[*turn.reasoning, "\n", *turn.content])


def _one_call_each(turn: Turn) -> list[Turn]:
    """For templates that render the first call of a turn only."""
    if len(turn.calls) < 2:
        return [turn]
    others = turn.calls[1:]
    later = [block for block in turn.blocks if isinstance(block, ToolCall)][1:]
    first = replace(turn, calls=turn.calls[:1], blocks=[block for block in turn.blocks if block not in later])
    return [
        first,
        *(replace(turn, content=[], reasoning=[], calls=[c], blocks=[b]) for c, b in zip(others, later, strict=True)),
    ]


def _system_as_user(turns: list[Turn]) -> list[Turn]:
    """For templates that take a system message only at the start."""
    return [
        replace(t, role="user", content=[_SYSTEM_NOTE, *t.content]) if t.role == "system" and i else t
        for i, t in enumerate(turns)
    ]
