"""History fidelity: a turn that comes back as the model generated it renders to the very tokens the model generated.

Text does not determine tokens, and clients re-serialise arguments. Without this, a turn's second life could differ from
its first by one token and the cache would lose everything behind it.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.prompt.conversation import Block, Text, Thinking, ToolCall
from engine.prompt.dialects.contract import Markers
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.lru import ByteLru
from engine.prompt.tokenizer import Tokenizer, TokenStream

_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Echo:
    """The generated tokens of one turn without the end-of-turn token; `ends` holds one token position for each block."""

    ids: tuple[int, ...]
    text: str
    ends: tuple[int, ...]


class Place:
    """A position in a prompt, known by the tokens before it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._count = 0

    def update(self, tokens: Sequence[int]) -> None:
        """Move to the end of `tokens`, which starts with all tokens seen before."""
        self._hash.update(array("I", tokens[self._count :]).tobytes())
        self._count = len(tokens)

    def after(self, tokens: Sequence[int]) -> Place:
        """The place behind `tokens`; this one stays."""
        place = Place()
        place._hash = self._hash.copy()
        place._hash.update(array("I", tokens).tobytes())
        place._count = self._count + len(tokens)
        return place

    def digest(self) -> bytes:
        return self._hash.digest()


class EchoMemory:
    """Bounded; forgetting a turn only makes its next rendering the canonical one."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int], markers: Mapping[str, Markers]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._markers = markers
        self._turns: ByteLru[bytes, Echo] = ByteLru(_LIMIT_BYTES)

    def remember(self, blocks: Sequence[Block], ids: Sequence[int], prompt: Sequence[int], calls: bool = True) -> None:
        """Keep `ids`, generated after `prompt`, for the turn that `blocks` came from.

        Short answers repeat, and not always in the same tokens: the prompt tells them apart. An empty prompt is unknown.
        An answer that was cut inside a call is not kept: half a call is nothing to continue from. Without `calls`, where
        nothing could be called, what looks like one is text.
        """
        kept = list(ids)
        while kept and kept[-1] in self._stop_ids:
            kept.pop()
        merged = merge(blocks)
        if not merged or not kept:
            return
        echo = self._measure(merged, kept)
        if calls and len(kept) == len(ids) and self._ends_in_call(echo.text):
            return
        size = 40 * len(kept) + 4 * len(echo.text) + 300
        by_id, by_content = _key(merged, True), _key(merged, False)
        if prompt:
            place = Place()
            place.update(prompt)
            self._turns.put(place.digest() + by_id, echo, size)
            self._turns.put(place.digest() + by_content, echo, size)
        for key in (by_id, by_content):
            if self._turns.get(key) is None:  # the first stays: what older prompts showed must not change
                self._turns.put(key, echo, size)

    def recall(self, blocks: Sequence[Block], place: Place) -> Echo | None:
        """The turn's tokens, those generated at `place` if there are any.

        Calls are recognised by their id, or by name and arguments when a client replaced the ids.
        """
        merged = merge(blocks)
        if not merged:
            return None
        by_id, by_content = _key(merged, True), _key(merged, False)
        for key in (place.digest() + by_id, place.digest() + by_content, by_id, by_content):
            echo = self._turns.get(key)
            if echo is not None:
                return echo
        return None

    def _measure(self, blocks: Sequence[Block], ids: list[int]) -> Echo:
        stream = TokenStream(self._tokenizer, ())
        offsets, length, pieces = [], 0, []
        for token in ids:
            pieces.append(stream.feed([token]))
            length += len(pieces[-1])
            offsets.append(length)
        text = "".join(pieces) + stream.finish()
        ends, position = [], 0
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            position = self._end(text, position, block, following)
            ends.append(next((i + 1 for i, offset in enumerate(offsets) if offset >= position), len(ids)))
        ends[-1] = len(ids)
        return Echo(tuple(ids), text, tuple(ends))

    def _ends_in_call(self, text: str) -> bool:
        marks = self._markers["tool_call"]
        return text.rfind(marks.open) > (text.rfind(marks.close) if marks.close else -1)

    def _end(self, text: str, start: int, block: Block, following: Block | None) -> int:
        if isinstance(block, Text):
            found = text.find(self._markers["tool_call"].open, start) if isinstance(following, ToolCall) else -1
            return found if found >= 0 else len(text)
        marks = self._markers["thinking" if isinstance(block, Thinking) else "tool_call"]
        close = marks.close
        if not close:  # the next call ends it
            found = text.find(marks.open, start + 1) if isinstance(following, ToolCall) else -1
            return found if found >= 0 else len(text)
        found = text.find(close, start)
        return found + len(close) if found >= 0 else len(text)


def merge(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that leave a trace in the text: empty and opaque ones dropped, neighbours of one kind joined."""
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if isinstance(block, Text):
            if isinstance(last, Text):
                merged[-1] = Text(last.text + block.text)
            elif block.text.strip():
                merged.append(block)
        elif isinstance(block, Thinking):
            if block.opaque or not block.text.strip():
                continue
            if isinstance(last, Thinking):
                merged[-1] = Thinking(last.text + block.text)
            else:
                merged.append(block)
        else:
            merged.append(block)
    return merged


def _key(blocks: Sequence[Block], by_id: bool) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for block in blocks:
        if isinstance(block, Thinking):
            part = ["thinking", block.text.strip()]
        elif isinstance(block, Text):
            part = ["text", block.text.strip()]
        elif isinstance(block, ToolCall):
            part = ["id", block.id] if by_id else ["call", block.namespace, block.name, _canonical(block.arguments)]
        else:
            part = [type(block).__name__]
        digest.update(json.dumps(part).encode() + b"\n")
    return digest.digest()


def _canonical(arguments: str) -> str:
    value = strict_object(arguments or "{}")
    return arguments if value is None else json.dumps(value, sort_keys=True)
