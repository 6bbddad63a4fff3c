"""`/v1/messages`: Anthropic's dialect, streamed and whole."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import anthropic_parse, collect, errors, fields, generate
from engine.api.stream import sse
from engine.errors import FtError
from engine.front import generation as generations
from engine.front.context import Front
from engine.front.generation import Generation
from engine.front.items import Ask, Beat, Item, Logprob, Usage
from engine.front.sessions import Session
from engine.prompt.conversation import Text, Thinking, ToolCall
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

_STOP_REASONS = {"stop": "end_turn", "stop_string": "stop_sequence", "tool_use": "tool_use", "length": "max_tokens"}


async def messages(request: Request) -> Response:
    """POST /v1/messages. Errors before the first byte are HTTP errors, later ones `error` events."""
    front: Front = request.app.state.front
    session: Session = request.state.session
    body = await fields.read_json(request)
    generation = await generations.start(front, session, _ask(front, body), request.headers, body)
    return generate.answer(
        generation, lambda: _stream(generation), lambda: _whole(generation), dialect=errors.ANTHROPIC
    )


async def count_tokens(request: Request) -> Response:
    """POST /v1/messages/count_tokens."""
    front: Front = request.app.state.front
    session: Session = request.state.session
    body = await fields.read_json(request)
    counted, original = await generations.count(front, session, _ask(front, body), request.headers, body)
    answer: dict[str, Any] = {"input_tokens": counted}
    if body.get("context_management") is not None:
        answer["context_management"] = {"original_input_tokens": original}
    return JSONResponse(answer)


def _ask(front: Front, body: dict[str, Any]) -> Ask:
    conversation = anthropic_parse.conversation(body)
    return Ask(
        conversation=conversation,
        max_tokens=fields.positive(body, "max_tokens"),
        shows_thinking=bool(conversation.thinking),
        **generate.common(front, body, "messages", stop="stop_sequences"),
    )


async def hello(request: Request) -> Response:
    """What clients ask at their start to see whether anything is there."""
    return JSONResponse({"message": "hello"})


def signature(thinking: str) -> str:
    """Our own opaque mark for a thinking block; it claims nothing about any vendor."""
    return base64.b64encode(b"ft1:" + hashlib.sha256(thinking.encode()).digest()).decode()


async def _whole(generation: Generation) -> dict[str, Any]:
    finished, _ = await collect.run(generation)
    content: list[dict[str, Any]] = []
    for block in generation.answer.blocks():
        if isinstance(block, Text):
            content.append({"type": "text", "text": block.text})
        elif isinstance(block, Thinking) and generation.ask.shows_thinking:
            content.append({"type": "thinking", "thinking": block.text, "signature": signature(block.text)})
        elif isinstance(block, ToolCall):
            content.append({"type": "tool_use", "id": block.id, "name": block.name, "input": _object(block.arguments)})
    return {
        **_message(generation),
        "content": content,
        "stop_reason": _STOP_REASONS[finished.reason],
        "stop_sequence": finished.stop_string,
        "usage": _usage(finished.usage),
        **_applied(generation),
    }


def _message(generation: Generation) -> dict[str, Any]:
    return {
        "id": "msg_" + secrets.token_hex(12),
        "type": "message",
        "role": "assistant",
        "model": generation.ask.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _applied(generation: Generation) -> dict[str, Any]:
    """The context edits that were made, where the client asked for any."""
    edits = generation.record.applied_edits
    return {} if edits is None else {"context_management": {"applied_edits": edits}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def _object(arguments: str) -> Any:
    """Arguments as the object this dialect wants; text that is no JSON is kept, wrapped."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}


class _Writer:
    """Numbers blocks and keeps exactly one open, so that the event order is what strict clients expect."""

    def __init__(self) -> None:
        self.index = -1
        self.kind = ""
        self._thought: list[str] = []

    def open(self, kind: str, block: Mapping[str, Any]) -> list[bytes]:
        out = self.close()
        self.index += 1
        self.kind = kind
        start = {"type": "content_block_start", "index": self.index, "content_block": block}
        return [*out, sse(start, "content_block_start")]

    def text(self, kind: str, text: str) -> list[bytes]:
        """A text or thinking delta, in a new block when another kind is open."""
        out: list[bytes] = []
        if self.kind != kind:
            empty = {"type": "text", "text": ""} if kind == "text" else _EMPTY_THINKING
            out = self.open(kind, empty)
        if kind == "thinking":
            self._thought.append(text)
        return [*out, self.delta(text)]

    def delta(self, text: str) -> bytes:
        """A delta of the open block's own kind."""
        name, key = _DELTAS[self.kind]
        delta = {"type": "content_block_delta", "index": self.index, "delta": {"type": name, key: text}}
        return sse(delta, "content_block_delta")

    def close(self) -> list[bytes]:
        if not self.kind:
            return []
        out = []
        if self.kind == "thinking":
            mark = {"type": "signature_delta", "signature": signature("".join(self._thought))}
            event = {"type": "content_block_delta", "index": self.index, "delta": mark}
            out.append(sse(event, "content_block_delta"))
            self._thought = []
        self.kind = ""
        return [*out, sse({"type": "content_block_stop", "index": self.index}, "content_block_stop")]


_EMPTY_THINKING = {"type": "thinking", "thinking": "", "signature": ""}
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


async def _stream(generation: Generation) -> AsyncGenerator[bytes, None]:
    start = {**_message(generation), "usage": _usage(generation.usage)}
    yield sse({"type": "message_start", "message": start}, "message_start")
    writer = _Writer()
    try:
        async with contextlib.aclosing(generation.events()) as items:
            async for item in items:
                for chunk in _chunks(writer, item, generation):
                    yield chunk
    except FtError as error:
        generation.fail(error)
        body = errors.anthropic_body(error, errors.status_of(error))
        yield sse(body, "error")


def _chunks(writer: _Writer, item: Item, generation: Generation) -> list[bytes]:
    if isinstance(item, Beat):
        return _beat(writer, generation.ask.shows_thinking)
    if isinstance(item, TextDelta):
        return writer.text("text", item.text)
    if isinstance(item, ThinkingDelta):
        return writer.text("thinking", item.text)
    if isinstance(item, ToolCallStart):
        return writer.open("tool_use", {"type": "tool_use", "id": item.id, "name": item.name, "input": {}})
    if isinstance(item, ToolCallDelta):
        return [writer.delta(item.arguments)]
    if isinstance(item, ToolCallEnd):
        return writer.close()
    if isinstance(item, Logprob):
        return []
    delta = {"stop_reason": _STOP_REASONS[item.reason], "stop_sequence": item.stop_string}
    end = {"type": "message_delta", "delta": delta, "usage": _usage(item.usage), **_applied(generation)}
    return [*writer.close(), sse(end, "message_delta"), sse({"type": "message_stop"}, "message_stop")]


def _beat(writer: _Writer, shows_thinking: bool) -> list[bytes]:
    """A sign of life that the client counts: an empty delta of the open block; before any block, an empty thought."""
    if writer.kind:
        return [writer.delta("")]
    if shows_thinking:
        return writer.text("thinking", "")
    return [sse({"type": "ping"}, "ping")]
