"""What harnesses do to context already sent: pure functions from one conversation to the next.

Every function keeps the indices of what it leaves alone and returns its argument when there is nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from engine.prompt.conversation import Block, Conversation, Media, Message, Text, Thinking, ToolCall, ToolResult
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.edits.outline import Place, kind_is, text_of

_LINES = "{lines}"


def append(conversation: Conversation, messages: Sequence[Message]) -> Conversation:
    """The conversation with messages behind it."""
    return _with(conversation, [*conversation.messages, *messages])


def clear_result(conversation: Conversation, places: Collection[Place], placeholder: str) -> Conversation:
    """The results at `places` with a placeholder for their content; `{lines}` in it becomes the number of lines."""

    def clear(block: Block) -> Block:
        if not isinstance(block, ToolResult):
            return block
        return replace(block, content=(Text(placeholder_for(placeholder, text_of(block))),))

    return _map(conversation, places, clear)


def placeholder_for(placeholder: str, text: str) -> str:
    """What stands in the place of `text`."""
    return placeholder.replace(_LINES, str(len(text.splitlines()))) if _LINES in placeholder else placeholder


def drop_thinking(conversation: Conversation, before: int) -> Conversation:
    """No thinking in the messages before index `before`."""
    if before <= 0:
        return conversation
    messages = [
        replace(m, blocks=tuple(b for b in m.blocks if not isinstance(b, Thinking))) if i < before else m
        for i, m in enumerate(conversation.messages)
    ]
    return _with(conversation, messages)


def summarize(conversation: Conversation, until: Place, kept: Sequence[Message] = ()) -> Conversation:
    """What is certain of a compacted conversation: all before block `until`, then the messages `kept` before the summary."""
    message, block = until
    messages = list(conversation.messages[:message])
    if block > 0:
        partial = conversation.messages[message]
        messages.append(replace(partial, blocks=partial.blocks[:block]))
    return _with(conversation, [*messages, *kept])


def end_with(conversation: Conversation, place: Place, end: str) -> Conversation:
    """With a text block that ends with `end`."""

    def extend(block: Block) -> Block:
        return (
            replace(block, text=block.text + end) if isinstance(block, Text) and not block.text.endswith(end) else block
        )

    return _map(conversation, [place], extend)


def move_tail(conversation: Conversation, matches: Callable[[str], bool] | None = None) -> Conversation:
    """Without the trailing user message that the client sends anew behind everything else.

    With `matches`, only where a text of it matches; blocks before the first matching one stay.
    """
    last = conversation.messages[-1] if conversation.messages else None
    if last is None or last.role != "user":
        return conversation
    cut = 0
    if matches is not None:
        found = [j for j, block in enumerate(last.blocks) if matches(text_of(block))]
        if not found:
            return conversation
        cut = found[0]
    rest = [replace(last, blocks=last.blocks[:cut])] if cut else []
    return _with(conversation, [*conversation.messages[:-1], *rest])


def insert_block(conversation: Conversation, place: Place, block: Block) -> Conversation:
    """With `block` before the block at `place`, or at the end of that message."""
    message, index = place
    if message >= len(conversation.messages):
        return conversation
    old = conversation.messages[message]
    new = replace(old, blocks=(*old.blocks[:index], block, *old.blocks[index:]))
    return _with(conversation, [*conversation.messages[:message], new, *conversation.messages[message + 1 :]])


def drop_block(conversation: Conversation, places: Collection[Place]) -> Conversation:
    """Without the blocks at `places`; a message that loses its last block goes too."""
    return _map(conversation, places, lambda block: None)


def reorder(conversation: Conversation, start: int, order: Sequence[int]) -> Conversation:
    """The messages from `start` on in another order: `order` lists their old offsets, each once."""
    part = conversation.messages[start : start + len(order)]
    if sorted(order) != list(range(len(part))):
        return conversation
    moved = [part[offset] for offset in order]
    return _with(conversation, [*conversation.messages[:start], *moved, *conversation.messages[start + len(order) :]])


def strip_media(conversation: Conversation, places: Collection[Place], kind: str, note: str = "") -> Conversation:
    """The blocks at `places` without their media of `kind`; a note may stand in their place."""

    def strip(block: Block) -> Block | None:
        if isinstance(block, Media) and kind_is(block, kind):
            return Text(note) if note else None
        if isinstance(block, ToolResult):
            parts: list[Text | Media] = []
            for part in block.content:
                if not kind_is(part, kind):
                    parts.append(part)
                elif note:
                    parts.append(Text(note))
            return replace(block, content=tuple(parts))
        return block

    return _map(conversation, places, strip)


def rewrite_call(conversation: Conversation, places: Collection[Place], style: str) -> Conversation:
    """The calls at `places` with their arguments in another spelling: json_compact, json_sorted or json_defaults.

    What a client inserts as a default is not known here; json_defaults re-spells the rest.
    """

    def rewrite(block: Block) -> Block:
        if not isinstance(block, ToolCall) or style == "verbatim":
            return block
        value: Any = strict_object(block.arguments or "{}")
        if value is None:
            return block
        separators = (", ", ": ") if style == "json_sorted" else (",", ":")
        text = json.dumps(value, ensure_ascii=False, sort_keys=style == "json_sorted", separators=separators)
        return replace(block, arguments=text)

    return _map(conversation, places, rewrite)


def replace_head(conversation: Conversation, texts: Sequence[str]) -> Conversation:
    """With the given texts as the only leading system message; none means no system message."""
    rest = next((i for i, m in enumerate(conversation.messages) if m.role != "system"), len(conversation.messages))
    head = [Message("system", tuple(Text(text) for text in texts))] if texts else []
    return _with(conversation, [*head, *conversation.messages[rest:]])


def truncate_turns(conversation: Conversation, start: int) -> Conversation:
    """Without the messages from index `start` on."""
    return _with(conversation, conversation.messages[: max(start, 0)])


def _map(
    conversation: Conversation, places: Collection[Place], change: Callable[[Block], Block | None]
) -> Conversation:
    if not places:
        return conversation
    chosen = set(places)
    messages: list[Message] = []
    for i, message in enumerate(conversation.messages):
        blocks: list[Block] = []
        for j, block in enumerate(message.blocks):
            changed = change(block) if (i, j) in chosen else block
            if changed is not None:
                blocks.append(changed)
        if blocks or not message.blocks:
            messages.append(message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks)))
    return _with(conversation, messages)


def _with(conversation: Conversation, messages: Sequence[Message]) -> Conversation:
    new = tuple(messages)
    return conversation if new == conversation.messages else replace(conversation, messages=new)
