"""Edit points every agent has: the end of the head, the starts of turns, the end of the prompt."""

from __future__ import annotations

from engine.prompt.conversation import Conversation, Prompt, Text
from engine.protocol import EditPoint

_NEWEST_TURNS = 4


def edit_points(conversation: Conversation, prompt: Prompt) -> list[EditPoint]:
    """Positions in `prompt`, ascending, one for each position.

    head: behind tools and leading system messages. turn: where a user or a late system message starts, and where the
    prompt of that turn's first request ended; for the newest turns. prompt: before the generation prefix.
    """
    starts = _message_starts(prompt)
    head_messages = next(
        (i for i, m in enumerate(conversation.messages) if m.role != "system"), len(conversation.messages)
    )
    points: dict[int, str] = {}
    turns = [i for i in range(head_messages, len(conversation.messages)) if _opens_turn(conversation, i)]
    for index in turns[-_NEWEST_TURNS:]:
        for message in (index, _answer_to(conversation, index)):
            if message in starts:
                points[starts[message]] = "turn"
    head = min((start for message, start in starts.items() if message >= head_messages), default=prompt.end)
    points[head] = "head"
    points[prompt.end] = "prompt"
    return [EditPoint(position, kind) for position, kind in sorted(points.items()) if position > 0]


def _message_starts(prompt: Prompt) -> dict[int, int]:
    starts: dict[int, int] = {}
    for span in prompt.spans:
        if span.message >= 0 and span.kind != "generation":
            starts.setdefault(span.message, span.start)
    return starts


def _opens_turn(conversation: Conversation, index: int) -> bool:
    message = conversation.messages[index]
    return message.role == "system" or (
        message.role == "user" and any(isinstance(block, Text) for block in message.blocks)
    )


def _answer_to(conversation: Conversation, index: int) -> int:
    """The first assistant message behind `index`, or -1."""
    messages = conversation.messages
    return next((i for i in range(index + 1, len(messages)) if messages[i].role == "assistant"), -1)
