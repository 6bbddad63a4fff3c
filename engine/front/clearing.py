"""Context edits that a client asks the server to make: old tool results and old thinking left out of the prompt.

The client keeps sending the whole conversation; what was cleared once stays cleared for its line, so that clearing costs
the cached prefix rarely. Clears are batched: never less than the client's own minimum, nor than a sixteenth of the window
while there is room. The best moment is after a reply, while nobody waits: the edited prompt is then computed ahead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import BadRequest
from engine.prompt.conversation import Block, Conversation, Message, Prompt, Text, Thinking, ToolCall, ToolResult

TOOL_USES = "clear_tool_uses_20250919"
THINKING = "clear_thinking_20251015"
PLACEHOLDER = "[This tool result was cleared to keep the context small.]"
CLEARED_INPUT = "{}"


@dataclass(frozen=True, slots=True)
class ToolUseEdit:
    """Tool results but the newest `keep`, once the prompt has more than `trigger` tokens or tool uses (`counts`)."""

    trigger: int = 100_000
    counts: str = "input_tokens"
    keep: int = 3
    at_least: int = 0
    exclude: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False


@dataclass(frozen=True, slots=True)
class ThinkingEdit:
    """Thinking but that of the newest `keep` assistant turns; None keeps all."""

    keep: int | None = 1


@dataclass(frozen=True, slots=True)
class Edits:
    """What one request asks for. `asked`: it has a `context_management` of its own, so the response reports one too."""

    asked: bool = False
    thinking: ThinkingEdit | None = None
    tool_uses: ToolUseEdit | None = None

    @staticmethod
    def parse(body: Mapping[str, Any]) -> Edits:
        """The edits of a body. Kinds that we do not know are passed over. Raises BadRequest naming the field."""
        management = body.get("context_management")
        if management is None:
            return Edits()
        if not isinstance(management, Mapping):
            raise BadRequest("context_management: expected an object.")
        thinking: ThinkingEdit | None = None
        tool_uses: ToolUseEdit | None = None
        listed = management.get("edits", [])
        if not isinstance(listed, list):
            raise BadRequest("context_management.edits: expected a list.")
        for i, edit in enumerate(listed):
            where = f"context_management.edits[{i}]"
            if not isinstance(edit, Mapping) or not isinstance(edit.get("type"), str):
                raise BadRequest(f"{where}.type: expected a string.")
            if edit["type"] == TOOL_USES:
                tool_uses = _tool_uses(edit, where)
            elif edit["type"] == THINKING:
                thinking = _thinking(edit, where)
        return Edits(True, thinking, tool_uses)

    def __bool__(self) -> bool:
        return self.tool_uses is not None or (self.thinking is not None and self.thinking.keep is not None)


@dataclass(slots=True)
class Applied:
    """What was left out of one prompt, for the response. Tokens are those of the blocks as they would have been rendered."""

    tool_uses: int = 0
    tool_tokens: int = 0
    thinking_turns: int = 0
    thinking_tokens: int = 0

    def json(self) -> list[dict[str, Any]]:
        edits: list[dict[str, Any]] = []
        if self.thinking_turns:
            counts = {"cleared_thinking_turns": self.thinking_turns, "cleared_input_tokens": self.thinking_tokens}
            edits.append({"type": THINKING, **counts})
        if self.tool_uses:
            edits.append(
                {"type": TOOL_USES, "cleared_tool_uses": self.tool_uses, "cleared_input_tokens": self.tool_tokens}
            )
        return edits


@dataclass(slots=True)
class Clearing:
    """One request's clears. `cleared` is its line's memory (key of a block -> its tokens)."""

    edits: Edits
    cleared: dict[str, int] = field(default_factory=dict)

    def apply(self, conversation: Conversation) -> Conversation:
        """The conversation without what was cleared."""
        if not self.cleared:
            return conversation
        inputs = self.edits.tool_uses.inputs if self.edits.tool_uses else False
        gone = {
            b.id
            for m in conversation.messages
            for b in m.blocks
            if isinstance(b, ToolCall) and _key(b.id) in self.cleared and _chosen(inputs, b.name)
        }
        messages = []
        for message in conversation.messages:
            blocks = tuple(new for b in message.blocks if (new := self._edited(b, gone)) is not None)
            if blocks or not message.blocks:
                messages.append(message if blocks == message.blocks else Message(message.role, blocks))
        return replace(conversation, messages=tuple(messages))

    def due(self, conversation: Conversation, prompt: Prompt, window: int) -> dict[str, int]:
        """What more can be cleared, given the conversation as sent and the prompt of what `apply` left: blocks and tokens.

        The caller chooses the moment, and adds it to `cleared`.
        """
        sizes = _sizes(prompt, self.apply(conversation))
        least = window // 16 if len(prompt.tokens) < window * 3 // 4 else 1
        return {
            **self._old_results(conversation, prompt, sizes, least),
            **self._old_thinking(conversation, sizes, least),
        }

    def applied(self, conversation: Conversation) -> Applied:
        """The counts for the response. `conversation` is the one the client sent."""
        applied = Applied()
        for message in conversation.messages:
            thought = [self.cleared[k] for b in message.blocks if (k := _key_of(b)) in self.cleared and _is_thinking(b)]
            applied.thinking_turns += bool(thought)
            applied.thinking_tokens += sum(thought)
            results = [self.cleared[k] for b in message.blocks if (k := _key_of(b)) in self.cleared and _is_result(b)]
            applied.tool_uses += len(results)
            applied.tool_tokens += sum(results)
        return applied

    def _edited(self, block: Block, without_input: Collection[str]) -> Block | None:
        if isinstance(block, ToolResult) and _key(block.call_id) in self.cleared:
            block = replace(block, content=(Text(PLACEHOLDER),))
            return replace(block, call_id=_renamed(block.call_id)) if block.call_id in without_input else block
        if isinstance(block, ToolCall) and block.id in without_input:
            # Under its own id the call would be rendered as it was generated.
            return replace(block, id=_renamed(block.id), arguments=CLEARED_INPUT)
        if isinstance(block, Thinking) and _key_of(block) in self.cleared:
            return None
        return block

    def _old_results(
        self, conversation: Conversation, prompt: Prompt, sizes: Mapping[str, int], least: int
    ) -> dict[str, int]:
        edit = self.edits.tool_uses
        if edit is None:
            return {}
        names = {b.id: b.name for m in conversation.messages for b in m.blocks if isinstance(b, ToolCall)}
        results = [b.call_id for m in conversation.messages for b in m.blocks if isinstance(b, ToolResult)]
        open_results = [c for c in results if _key(c) not in self.cleared]
        load = len(prompt.tokens) if edit.counts == "input_tokens" else len(open_results)
        if load <= edit.trigger:
            return {}
        old = results[: len(results) - edit.keep] if edit.keep else results
        chosen = [c for c in old if _key(c) not in self.cleared and names.get(c, "") not in edit.exclude]
        return _enough({_key(c): sizes.get(_key(c), 0) for c in chosen}, max(edit.at_least, least))

    def _old_thinking(self, conversation: Conversation, sizes: Mapping[str, int], least: int) -> dict[str, int]:
        edit = self.edits.thinking
        if edit is None or edit.keep is None:
            return {}
        turns = [
            [k for b in m.blocks if _is_thinking(b) and (k := _key_of(b))]
            for m in conversation.messages
            if m.role == "assistant"
        ]
        turns = [turn for turn in turns if turn]
        old = turns[: len(turns) - edit.keep] if edit.keep else turns
        return _enough({k: sizes.get(k, 0) for turn in old for k in turn if k not in self.cleared}, least)


def _enough(chosen: dict[str, int], least: int) -> dict[str, int]:
    return chosen if sum(chosen.values()) >= least else {}


def _sizes(prompt: Prompt, rendered: Conversation) -> dict[str, int]:
    """Tokens of each block that can be cleared, as it stands in `prompt`, which renders `rendered`."""
    by_place: dict[tuple[int, int], int] = {}
    for span in prompt.spans:
        by_place[span.message, span.block] = by_place.get((span.message, span.block), 0) + span.end - span.start
    sizes = {}
    for i, message in enumerate(rendered.messages):
        for j, block in enumerate(message.blocks):
            key = _key_of(block)
            if key is not None:
                sizes[key] = by_place.get((i, j), 0)
    return sizes


def _key(call_id: str) -> str:
    return "result:" + call_id


def _key_of(block: Block) -> str | None:
    if isinstance(block, ToolResult):
        return _key(block.call_id)
    if isinstance(block, Thinking) and not block.opaque:
        return "thinking:" + hashlib.blake2b(block.text.strip().encode(), digest_size=12).hexdigest()
    return None


def _is_thinking(block: Block) -> bool:
    return isinstance(block, Thinking)


def _is_result(block: Block) -> bool:
    return isinstance(block, ToolResult)


def _renamed(call_id: str) -> str:
    return "cleared" + call_id


def _chosen(inputs: bool | frozenset[str], name: str) -> bool:
    return inputs if isinstance(inputs, bool) else name in inputs


def _tool_uses(edit: Mapping[str, Any], where: str) -> ToolUseEdit:
    trigger, counts = _amount(edit.get("trigger"), f"{where}.trigger", ("input_tokens", "tool_uses"), 100_000)
    keep, _ = _amount(edit.get("keep"), f"{where}.keep", ("tool_uses",), 3)
    at_least, _ = _amount(edit.get("clear_at_least"), f"{where}.clear_at_least", ("input_tokens",), 0)
    inputs = edit.get("clear_tool_inputs") or False
    return ToolUseEdit(
        trigger,
        counts,
        keep,
        at_least,
        frozenset(_names(edit.get("exclude_tools") or [], f"{where}.exclude_tools")),
        inputs if isinstance(inputs, bool) else frozenset(_names(inputs, f"{where}.clear_tool_inputs")),
    )


def _thinking(edit: Mapping[str, Any], where: str) -> ThinkingEdit:
    keep = edit.get("keep")
    if keep == "all" or (isinstance(keep, Mapping) and keep.get("type") == "all"):
        return ThinkingEdit(None)
    return ThinkingEdit(max(1, _amount(keep, f"{where}.keep", ("thinking_turns",), 1)[0]))


def _amount(value: Any, where: str, kinds: Sequence[str], default: int) -> tuple[int, str]:
    if value is None:
        return default, kinds[0]
    if not isinstance(value, Mapping) or value.get("type") not in kinds:
        raise BadRequest(f"{where}.type: expected {' or '.join(kinds)}, got {json.dumps(value)[:80]}.")
    count = value.get("value")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadRequest(f"{where}.value: expected a count.")
    return count, str(value["type"])


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadRequest(f"{where}: expected a list of names.")
    return value
