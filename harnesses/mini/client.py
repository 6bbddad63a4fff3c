"""Streaming chat completions over the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


class EngineError(Exception):
    """The engine answered with an error, or could not be reached."""


@dataclass(slots=True)
class Reply:
    """One assistant turn, put together from its deltas."""

    text: str = ""
    thinking: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = None

    def message(self) -> dict[str, Any]:
        """The turn as the next request repeats it, arguments and thinking unchanged."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message

    def add(self, delta: dict[str, Any]) -> None:
        """Mutates this reply by one delta of the stream."""
        self.text += delta.get("content") or ""
        self.thinking += delta.get("reasoning_content") or ""
        for part in delta.get("tool_calls") or []:
            while len(self.tool_calls) <= part["index"]:
                self.tool_calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            call = self.tool_calls[part["index"]]
            call["id"] = part.get("id") or call["id"]
            function = part.get("function") or {}
            call["function"]["name"] += function.get("name") or ""
            call["function"]["arguments"] += function.get("arguments") or ""


@dataclass(frozen=True, slots=True)
class Client:
    base_url: str  # of the session, without /v1
    token: str
    silence_s: float  # longest wait for the next byte

    def complete(self, body: dict[str, Any], shown: Callable[[dict[str, Any]], None]) -> Reply:
        """Sends one request; `shown` sees every delta as it arrives. Raises EngineError."""
        reply = Reply()
        for event in self._events({**body, "stream": True}):
            if "error" in event:
                raise EngineError(_message(event))
            for choice in event.get("choices", []):
                delta = choice.get("delta") or {}
                reply.add(delta)
                shown(delta)
                reply.finish = choice.get("finish_reason") or reply.finish
        if reply.finish is None:
            raise EngineError("the stream ended in the middle of an answer")
        return reply

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        request = urllib.request.Request(  # noqa: S310 - the caller accepts http URLs of loopback only
            f"{self.base_url}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={
                "content-type": "application/json",
                "authorization": f"Bearer {self.token}",
                "user-agent": "ft-mini/1",
            },
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self.silence_s) as response:
                for line in response:
                    if line.startswith(b"data:"):
                        data = line[5:].strip()
                        if data == b"[DONE]":
                            return
                        yield json.loads(data)
        except urllib.error.HTTPError as error:
            raise EngineError(f"HTTP {error.code}: {_error_text(error)}") from error
        except (OSError, ValueError) as error:
            raise EngineError(str(error)) from error


def _error_text(error: urllib.error.HTTPError) -> str:
    raw = error.read()
    try:
        return _message(json.loads(raw))
    except (ValueError, AttributeError):
        return raw.decode(errors="replace")[:500]


def _message(body: dict[str, Any]) -> str:
    inner = body.get("error")
    return str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)
