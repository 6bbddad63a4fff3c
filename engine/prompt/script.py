"""Scripted replay: which assistant turn a request gets, as conversation blocks in the agent's own tools."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.prompt.conversation import Block, Conversation, Message, Text, Tool, ToolCall, ToolResult
from engine.prompt.dialects.contract import visible_name
from engine.prompt.output import new_call_id
from engine.prompt.script_format import (
    Candidate,
    Lines,
    ScriptedBlock,
    ScriptedCall,
    ScriptError,
    parse_lines,
    parse_mapping,
)

_PLACE = re.compile(r"\{([a-z_]+)(\|sh)?\}")


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """What to answer. `side`: the request is not one of the agent's own turns and consumes none."""

    blocks: tuple[Block, ...]
    side: bool = False


@dataclass(slots=True)
class Script:
    """One session's script. It remembers how far the main line was played: a compaction takes turns out of the history."""

    lines: Lines
    tools: Mapping[str, tuple[Candidate, ...]]
    _played: int = 0  # turns of the main line that were asked for
    _removed: int = 0  # of them, those that compactions took out of the conversation
    _compacted: bool = False  # a compaction was answered and its effect has not been seen
    _compactions: int = 0  # compactions that took effect

    @staticmethod
    def parse(data: Any, tools: Any = None) -> Script:
        """`data` is the script, `tools` the declaration's `[tools]`; without a mapping a neutral tool maps to itself.

        Raises ScriptError naming the place of the mistake.
        """
        return Script(parse_lines(data), parse_mapping(tools if tools is not None else {}))

    def turn_for(self, conversation: Conversation, side: str | None = None) -> ScriptedTurn:
        """The scripted answer to a request: its number is the number of assistant turns already in the conversation, and
        of those that a compaction took out of it.

        `side` is the kind of a side request (title, compaction …), None for one of the agent's own turns; requests without
        tools are side requests in any case. Raises ScriptError when the script has no such turn or the request lacks the
        tool.
        """
        if side is not None or not conversation.tools:
            return self._beside(side)
        opening = _first_user_text(conversation.messages)
        line = next((sub for sub in self.lines.subagents if sub.match in opening), self.lines.main)
        number = _answered_turns(conversation.messages)
        if line is self.lines.main:
            number = self._number(number)
        if number >= len(line.turns):
            whose = f"the subagent line {line.match!r}" if line.match else "the main line"
            raise ScriptError(
                f"The script has run out: turn {number + 1} was asked for, {whose} has {len(line.turns)}.",
                "Add turns to the script.",
            )
        return ScriptedTurn(tuple(self._block(block, conversation.tools) for block in line.turns[number]))

    def _beside(self, kind: str | None) -> ScriptedTurn:
        text = self.lines.side
        if kind == "compaction":
            self._compacted = True
            if self.lines.compaction:
                text = self.lines.compaction[min(self._compactions, len(self.lines.compaction) - 1)]
        return ScriptedTurn((Text(text),) if text else (), side=True)

    def _number(self, answered: int) -> int:
        """The turn of the main line that follows `answered` turns still in the conversation.

        An agent may go on for a while after it has asked for a summary; the summary is in effect once turns are missing.
        """
        if self._compacted and answered + self._removed < self._played:
            self._removed = self._played - answered
            self._compacted = False
            self._compactions += 1
        number = answered + self._removed
        self._played = max(self._played, number + 1)
        return number

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
