"""Scripted replay: which assistant turn a request gets, as conversation blocks in the agent's own tools.

    {"turns": [{"blocks": [{"thinking": "…"} | {"text": "…"} | {"tool": "bash", "args": {"command": "…"}}]}],
     "subagents": [{"match": "first user text contains this", "turns": […]}],
     "side": "answer to side requests"}

A script speaks of neutral tools; a mapping, part of the harness's declaration, says how the agent's own tools express
them: `{"read": [{"name": "Read", "args": {"file_path": "{path}"}}]}`, the first candidate that the request offers wins.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import BadRequest
from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.dialects.contract import Dialect, full_name, visible_name
from engine.prompt.output import new_call_id

_PLACE = re.compile(r"\{([a-z_]+)(\|sh)?\}")
_NEUTRAL_TOOLS = {
    "bash": ("command",),
    "read": ("path",),
    "edit": ("path", "old", "new"),
    "write": ("path", "content"),
    "task": ("prompt", "description"),
}


class ScriptError(BadRequest):
    """The script is malformed, has run out, or asks for a tool that the request does not offer."""

    code = "FT-E0422 script"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    tool: str
    args: Mapping[str, Any]


ScriptedBlock = Text | Thinking | ScriptedCall


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way in which an agent can express a neutral tool. `args` is a template."""

    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """The turns of the main conversation (`match` empty) or of a subagent."""

    match: str
    turns: tuple[tuple[ScriptedBlock, ...], ...]


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """What to answer. `side`: the request is not one of the agent's own turns and consumes none."""

    blocks: tuple[Block, ...]
    side: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    main: Line
    subagents: tuple[Line, ...]
    side: str
    tools: Mapping[str, tuple[Candidate, ...]]

    @staticmethod
    def parse(data: Any, tools: Any = None) -> Script:
        """`data` is the script, `tools` the declaration's `[tools]`; without a mapping a neutral tool maps to itself.

        Raises ScriptError naming the place of the mistake.
        """
        data = _table(data, "script")
        _known(data, {"turns", "subagents", "side"}, "script")
        subagents = []
        for i, entry in enumerate(_list(data.get("subagents", []), "script.subagents")):
            place = f"script.subagents[{i}]"
            entry = _table(entry, place)
            _known(entry, {"match", "turns"}, place)
            match = _string(entry.get("match"), f"{place}.match")
            if not match:
                raise ScriptError(f"{place}.match is empty.", "Give a piece of the subagent's first user text.")
            subagents.append(Line(match, _turns(entry.get("turns"), f"{place}.turns")))
        return Script(
            Line("", _turns(data.get("turns"), "script.turns")),
            tuple(subagents),
            _string(data.get("side", ""), "script.side"),
            _mapping(tools if tools is not None else {}),
        )

    def turn_for(self, conversation: Conversation, side: bool = False) -> ScriptedTurn:
        """The scripted answer to a request: its number is the number of assistant turns already in the conversation.

        Requests without tools are side requests, and so are those the caller says are. Raises ScriptError when the script
        has no such turn or the request lacks the tool.
        """
        if side or not conversation.tools:
            return ScriptedTurn((Text(self.side),) if self.side else (), side=True)
        opening = _first_user_text(conversation.messages)
        line = next((sub for sub in self.subagents if sub.match in opening), self.main)
        number = _answered_turns(conversation.messages)
        if number >= len(line.turns):
            whose = f"the subagent line {line.match!r}" if line.match else "the main line"
            raise ScriptError(
                f"The script has run out: turn {number + 1} was asked for, {whose} has {len(line.turns)}.",
                "Add turns to the script.",
            )
        return ScriptedTurn(tuple(self._block(block, conversation.tools) for block in line.turns[number]))

    def _block(self, block: ScriptedBlock, offered: Sequence[Tool]) -> Block:
        if not isinstance(block, ScriptedCall):
            return block
        candidates = self.tools.get(block.tool) or (Candidate(block.tool, {k: f"{{{k}}}" for k in block.args}),)
        for candidate in candidates:
            for tool in offered:
                if candidate.name in (tool.name, visible_name(tool)):
                    arguments = _fill(candidate.args, block)
                    text = json.dumps(arguments, ensure_ascii=False)
                    return ToolCall(new_call_id(), tool.name, text, tool.namespace)
        names = ", ".join(candidate.name for candidate in candidates)
        raise ScriptError(
            f"The script calls {block.tool!r}, but the request offers none of: {names}.",
            "Extend [tools] in the harness's declaration.",
        )


def spell(
    blocks: Sequence[Block], dialect: Dialect, thinking_open: bool, control: Mapping[str, int]
) -> list[list[tuple[str, bool]]]:
    """A turn as the model would generate it, without the end: for each run of text its (piece, is a control token).

    Reasoning comes first, whatever its place among the blocks, because models reason before they answer.
    """

    def mark(text: str) -> tuple[str, bool]:
        return text, text in control

    runs: list[list[tuple[str, bool]]] = []
    marks = dialect.markers["thinking"]
    reasoning = "\n".join(block.text for block in blocks if isinstance(block, Thinking) and not block.opaque)
    if reasoning or thinking_open:
        opening = [] if thinking_open else [mark(marks.open), ("\n", False)]
        runs += [[*opening, (reasoning + "\n", False), mark(marks.close)], [("\n\n", False)]]
    calls = dialect.markers["tool_call"]
    answered = False
    for block in blocks:
        if isinstance(block, Text) and block.text:
            runs.append([(block.text, False)])
        elif isinstance(block, ToolCall):
            body = dialect.call_body(full_name(block.namespace, block.name), block.arguments or "{}")
            runs += [[("\n", False)]] if answered else []
            runs.append([mark(calls.open), (body, False), mark(calls.close)])
        else:
            continue
        answered = True
    return runs


def _fill(template: Any, call: ScriptedCall) -> Any:
    if isinstance(template, str):
        whole = _PLACE.fullmatch(template)
        if whole and not whole.group(2):
            return _argument(call, whole.group(1))
        return _PLACE.sub(lambda m: _inserted(_argument(call, m.group(1)), bool(m.group(2))), template)
    if isinstance(template, Mapping):
        return {key: _fill(value, call) for key, value in template.items()}
    if isinstance(template, list):
        return [_fill(value, call) for value in template]
    return template


def _argument(call: ScriptedCall, name: str) -> Any:
    if name not in call.args:
        raise ScriptError(f"The script's call of {call.tool!r} lacks the argument {name!r}.", "Add it to `args`.")
    return call.args[name]


def _inserted(value: Any, quoted: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shlex.quote(text) if quoted else text


def _answered_turns(messages: Sequence[Message]) -> int:
    count, before = 0, ""
    for message in messages:
        count += message.role == "assistant" != before
        before = message.role
    return count


def _first_user_text(messages: Sequence[Message]) -> str:
    for message in messages:
        if message.role == "user" and not any(isinstance(block, ToolResult) for block in message.blocks):
            return "\n".join(block.text for block in message.blocks if isinstance(block, Text))
    return ""


def _turns(data: Any, place: str) -> tuple[tuple[ScriptedBlock, ...], ...]:
    turns = []
    for i, entry in enumerate(_list(data, place)):
        turn = _table(entry, f"{place}[{i}]")
        _known(turn, {"blocks"}, f"{place}[{i}]")
        blocks = _list(turn.get("blocks"), f"{place}[{i}].blocks")
        if not blocks:
            raise ScriptError(f"{place}[{i}].blocks is empty.", "A turn needs a text or a tool call.")
        turns.append(tuple(_scripted(block, f"{place}[{i}].blocks[{j}]") for j, block in enumerate(blocks)))
    return tuple(turns)


def _scripted(data: Any, place: str) -> ScriptedBlock:
    block = _table(data, place)
    kinds = [kind for kind in ("thinking", "text", "tool") if kind in block]
    if len(kinds) != 1:
        raise ScriptError(f"{place} must have exactly one of thinking, text and tool.", "Split it into several blocks.")
    _known(block, {"tool", "args"} if kinds == ["tool"] else set(kinds), place)
    value = _string(block[kinds[0]], f"{place}.{kinds[0]}")
    if kinds[0] != "tool":
        return Thinking(value) if kinds[0] == "thinking" else Text(value)
    if value not in _NEUTRAL_TOOLS:
        raise ScriptError(f"{place}.tool is {value!r}.", f"Neutral tools are {', '.join(_NEUTRAL_TOOLS)}.")
    args = _table(block.get("args", {}), f"{place}.args")
    _known(args, set(_NEUTRAL_TOOLS[value]), f"{place}.args")
    return ScriptedCall(value, args)


def _mapping(data: Any) -> dict[str, tuple[Candidate, ...]]:
    mapping: dict[str, tuple[Candidate, ...]] = {}
    for tool, candidates in _table(data, "tools").items():
        if tool not in _NEUTRAL_TOOLS:
            raise ScriptError(f"tools.{tool} maps an unknown tool.", f"Neutral tools are {', '.join(_NEUTRAL_TOOLS)}.")
        found = []
        for i, entry in enumerate(_list(candidates, f"tools.{tool}")):
            place = f"tools.{tool}[{i}]"
            entry = _table(entry, place)
            args = _table(entry.get("args", {}), f"{place}.args")
            found.append(Candidate(_string(entry.get("name"), f"{place}.name"), args))
        mapping[tool] = tuple(found)
    return mapping


def _table(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ScriptError(f"{place} must be a table, not {_type(value)}.", "See the script format in the docs.")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ScriptError(f"{place} must be a list, not {_type(value)}.", "See the script format in the docs.")
    return value


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise ScriptError(f"{place} must be a string, not {_type(value)}.", "See the script format in the docs.")
    return value


def _known(table: Mapping[str, Any], names: set[str], place: str) -> None:
    unknown = sorted(set(table) - names)
    if unknown:
        raise ScriptError(f"{place} has an unknown key {unknown[0]!r}.", f"Known here: {', '.join(sorted(names))}.")


def _type(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
