"""One conversation with the model over /v1/chat/completions, without an agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ftagent.errors import EngineNotReady, FtError
from ftagent.local_engine.client import EngineClient


@dataclass(frozen=True, slots=True)
class Answer:
    """`usage` as the engine reported it; `ttft_s` measured here, from the request to the first text."""

    text: str
    thinking: str
    finish: str | None
    usage: dict[str, Any]
    ttft_s: float | None
    total_s: float


@dataclass(slots=True)
class Chat:
    """Keeps the messages; `ask` adds the question and, when it succeeds, the answer."""

    client: EngineClient
    model: str
    system: str | None = None
    max_tokens: int | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, prompt: str, on_text: Callable[[str], None], on_thinking: Callable[[str], None]) -> Answer:
        """Streams one answer. A question that fails or is interrupted is forgotten.

        Raises EngineNotReady when the stream ends before the engine has said why the answer does.
        """
        began = time.monotonic()
        first: float | None = None
        text, thinking, finish = "", "", None
        usage: dict[str, Any] = {}
        question = {"role": "user", "content": prompt}
        head = [{"role": "system", "content": self.system}] if self.system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*head, *self.messages, question],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        for event in self._events(body):
            if isinstance(event.get("error"), dict):
                raise FtError(str(event["error"].get("message", "The engine failed.")), "ft engine logs")
            usage = event.get("usage") or usage
            for choice in event.get("choices") or []:
                delta = choice.get("delta") or {}
                piece = delta.get("content") or ""
                thought = delta.get("reasoning_content") or ""
                if (piece or thought) and first is None:
                    first = time.monotonic() - began
                if thought:
                    thinking += thought
                    on_thinking(thought)
                if piece:
                    text += piece
                    on_text(piece)
                finish = choice.get("finish_reason") or finish
        if finish is None:
            raise _cut_off()
        self.messages += [question, {"role": "assistant", "content": text}]
        return Answer(text, thinking, finish, usage, first, time.monotonic() - began)

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            yield from self.client.stream("/v1/chat/completions", body)
        except ValueError:  # a line that broke off
            raise _cut_off() from None


def _cut_off() -> EngineNotReady:
    return EngineNotReady(
        "The stream ended in the middle of an answer.", "ft engine status", code="FT-E0502 engine-unreachable"
    )
