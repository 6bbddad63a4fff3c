"""The least an exact engine can compute on demand: what a prompt does not share with anything computed before it.

Two ways to the same number, which share no code with the caches: on the token lists, and by construction on the words a
session was written with.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

from engine.bench.toy import BASH, CALL_HEAD, GENERATION, HEAD, SUMMARY_HEAD, THINK_CLOSE
from engine.prompt.conversation import Block, Conversation, Text, Thinking, ToolCall, ToolResult

Piece = tuple[str, int]  # (what it says, its tokens); pieces that say different things differ in their first token


def on_demand(prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> list[int]:
    """Tokens to compute for each prompt, given all earlier prompts and replies. A reply's last token was never an input,
    and the last token of a prompt is always computed, for its logits."""
    seen: list[array[int]] = []
    bounds = []
    for prompt, reply in zip(prompts, replies, strict=True):
        tokens = array("I", prompt)
        shared = max((_common(tokens, other) for other in seen), default=0)
        bounds.append(len(tokens) - min(shared, len(tokens) - 1))
        seen.append(tokens + array("I", reply[:-1]))
    return bounds


def _common(a: array[int], b: array[int]) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def by_construction(asks: Sequence[tuple[list[Piece], list[Piece]]]) -> list[int]:
    """The same from (prompt, reply) pieces."""
    seen: list[list[Piece]] = []
    bounds = []
    for prompt, reply in asks:
        total = sum(size for _, size in prompt)
        shared = max((_shared(prompt, other) for other in seen), default=0)
        bounds.append(total - min(shared, total - 1))
        seen.append(prompt + reply[:-1])
    return bounds


def _shared(a: Sequence[Piece], b: Sequence[Piece]) -> int:
    tokens = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        tokens += x[1]
    return tokens


def prompt_pieces(conversation: Conversation, preserve_thinking: bool) -> list[Piece]:
    """What the toy template makes of a conversation, counted in words."""
    messages = conversation.messages
    query = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    pieces: list[Piece] = []
    for i, message in enumerate(messages):
        if i == 0 and message.role == "system":
            (text,) = message.blocks
            assert isinstance(text, Text) and conversation.tools == (BASH,)
            pieces += [("head", HEAD - 1), *_text(text.text), ("end", 1)]
        elif message.role == "assistant":
            shown = tuple(b for b in message.blocks if not isinstance(b, Thinking) or preserve_thinking or i > query)
            pieces += [("start", 1), ("role assistant", 1)]
            if any(isinstance(b, Thinking) for b in shown):
                pieces.append(("think", 2))
            pieces += _blocks(shown)
        else:
            pieces += [("start", 1), (f"role {message.role}", 1)]
            for number, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    assert len(message.blocks) == 1
                    block = block.content[0]
                assert isinstance(block, Text)
                pieces += [("line", 1)] if number else []
                pieces += _text(block.text)
            pieces.append(("end", 1))
    return [*pieces, ("start", 1), ("role assistant", 1), ("think", GENERATION - 2)]


def reply_pieces(blocks: Sequence[Block]) -> list[Piece]:
    """What the model generates for these blocks, behind the generation prefix, which opens its thinking."""
    thinks = any(isinstance(block, Thinking) for block in blocks)
    return [*([] if thinks else [("no thinking", THINK_CLOSE)]), *_blocks(blocks)]


def _blocks(blocks: Sequence[Block]) -> list[Piece]:
    pieces: list[Piece] = []
    answered = False
    for block in blocks:
        if isinstance(block, Thinking):
            pieces += [*_text(block.text), ("think close", THINK_CLOSE)]
            continue
        if isinstance(block, Text):
            pieces += _text(block.text)
        else:
            assert isinstance(block, ToolCall)
            pieces += [("line", 1)] if answered else []
            pieces += _call(block)
        answered = True
    return [*pieces, ("end", 1)]


def _text(text: str) -> list[Piece]:
    if text.startswith(SUMMARY_HEAD):
        return [(SUMMARY_HEAD, len(SUMMARY_HEAD.split())), *_text(text.removeprefix(SUMMARY_HEAD))]
    return [(text, len(text.split()))]


def _call(call: ToolCall) -> list[Piece]:
    """Arguments end with a command; a client that spells them anew may put its own in front."""
    opening = CALL_HEAD[: CALL_HEAD.index("command")]
    before, command, tail = call.arguments.removeprefix('{"').rsplit('"', 2)
    closing = f'"{tail}}}\n'
    return [
        ("call", 1 + size(opening)),
        (before + '"', size(before + '"')),
        *_text(command),
        ("call end", size(closing) + 1),
    ]


def size(text: str) -> int:
    """Tokens of template text: three letters, with or without a space before them, or one character."""
    return len(re.findall(r" ?[a-z]{3}|[\s\S]", text))
