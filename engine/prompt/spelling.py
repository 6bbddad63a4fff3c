"""How a model's template spells small things: what an old and a new text have in common where one replaces the other."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import takewhile

from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Message, Prompt, Text, ToolCall, ToolResult
from engine.prompt.dialects.contract import full_name
from engine.prompt.lru import ByteLru

_CACHE_BYTES = 1 << 20


class Spelling:
    """Learned by rendering tiny conversations, once each. Thread-safe as the renderer is."""

    def __init__(self, render: Callable[[Conversation], Prompt], encode: Callable[[str], Sequence[int]]) -> None:
        self._render = render
        self._encode = encode
        self._headers: dict[str, list[int]] = {}
        self._results: ByteLru[str, list[int]] = ByteLru(_CACHE_BYTES)
        self._forks: ByteLru[tuple[bytes, tuple[str, ...]], int] = ByteLru(_CACHE_BYTES)

    def header(self, kind: str) -> Sequence[int]:
        """The tokens between a message's start and its first block, for a message of `kind`; see template.Spelling."""
        found = self._headers.get(kind)
        if found is None:
            query, answer = Message("user", (Text("q"),)), Message("assistant", (Text("a"),))
            messages = {
                "system": (Message("system", (Text("s"),)), query),
                "user": (query, answer, query),
                "answer": (query, answer),
                "past_answer": (query, answer, query),
            }
            keep = False if kind == "past_answer" else None
            index = {"system": 0, "user": 2}.get(kind, 1)
            found = self._before_block(Conversation(messages[kind], preserve_thinking=keep), index)
            self._headers[kind] = found
        return found

    def result(self, text: str) -> Sequence[int]:
        """The tokens of a tool result that holds `text`, with its markers."""
        found = self._results.get(text)
        if found is None:
            call = Message("assistant", (ToolCall("call0", "f", "{}"),))
            messages = (Message("user", (Text("q"),)), call, Message("tool", (ToolResult("call0", (Text(text),)),)))
            prompt = self._try(Conversation(messages))
            spans = [span for span in prompt.spans if (span.message, span.block) == (2, 0)]
            found = prompt.tokens[spans[0].start : spans[-1].end] if spans else []
            self._results.put(text, found, 36 * len(found) + 2 * len(text) + 200)
        return found

    def without_tools(self, conversation: Conversation, names: Sequence[str], head: Sequence[int]) -> int | None:
        """Where `head`, the tokens before the conversation's first message, forks when tools are left out of it; None
        when it has none of them."""
        left = tuple(tool for tool in conversation.tools if full_name(tool.namespace, tool.name) not in names)
        if len(left) == len(conversation.tools):
            return None
        key = blake2b(array("I", head).tobytes(), digest_size=16).digest(), tuple(names)
        found = self._forks.get(key)
        if found is None:
            system = takewhile(lambda message: message.role == "system", conversation.messages)
            messages = (*system, Message("user", (Text("q"),)))
            other = self._try(replace(conversation, messages=messages, tools=left)).tokens
            pairs = enumerate(zip(head, other, strict=False))
            found = next((i for i, (a, b) in pairs if a != b), min(len(head), len(other)))
            self._forks.put(key, found, 300)
        return found if 0 < found < len(head) else None

    def encode(self, text: str) -> Sequence[int]:
        """Plain text."""
        return self._encode(text)

    def _before_block(self, conversation: Conversation, index: int) -> list[int]:
        prompt = self._try(conversation)
        spans = [span for span in prompt.spans if span.message == index and span.kind != "generation"]
        block = next((span.start for span in spans if span.block >= 0), None)
        return prompt.tokens[spans[0].start : block] if spans and block is not None else []

    def _try(self, conversation: Conversation) -> Prompt:
        try:
            return self._render(conversation)
        except BadRequest:  # a template that refuses this tells nothing; edges stay at the starts of blocks
            return Prompt([])
