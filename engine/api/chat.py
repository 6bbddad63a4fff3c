"""`/v1/chat/completions`: OpenAI's chat dialect, with `reasoning_content` for thinking."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.api import chat_parse, collect, fields, openai
from engine.api.stream import sse
from engine.errors import BadRequest, FtError
from engine.front.context import Front
from engine.front.generation import Generation
from engine.front.items import Ask, Beat, Finished, Item, Logprob, Usage
from engine.prompt.conversation import Text, Thinking, ToolCall
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart


async def completions(request: Request) -> Response:
    """POST /v1/chat/completions. Errors before the first byte are HTTP errors, later ones an `error` chunk."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    ask = Ask(
        conversation=chat_parse.conversation(body),
        max_tokens=fields.positive(body, "max_completion_tokens") or fields.positive(body, "max_tokens"),
        **openai.common(front, body, "chat", _logprobs(body)),
    )
    return await openai.answer(request, body, ask, _stream, _whole)


def _logprobs(body: dict[str, Any]) -> int | None:
    if not fields.get(body, "logprobs", bool):
        return None
    top = fields.get(body, "top_logprobs", int) or 0
    if not 0 <= top <= 20:
        raise BadRequest(f"top_logprobs: {top} is not between 0 and 20.")
    return top


async def _whole(generation: Generation) -> dict[str, Any]:
    finished, logprobs = await collect.run(generation)
    blocks = generation.answer.blocks()
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(b.text for b in blocks if isinstance(b, Text)) or None,
    }
    thought = "".join(b.text for b in blocks if isinstance(b, Thinking))
    calls = [b for b in blocks if isinstance(b, ToolCall)]
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
        ]
    elif message["content"] is None:
        message["content"] = ""
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": openai.FINISH[finished.reason]}
    choice["logprobs"] = {"content": [_logprob(p) for p in logprobs]} if logprobs else None
    head = _head(generation, "chat.completion")
    return {**head, "choices": [choice], "usage": openai.usage_json(finished.usage)}


def _head(generation: Generation, kind: str) -> dict[str, Any]:
    return {**openai.head(generation, "chatcmpl", kind), "system_fingerprint": None}


def _logprob(entry: Logprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "bytes": list(entry.token.encode()),
        "logprob": entry.logprob,
        "top_logprobs": [{"token": t, "bytes": list(t.encode()), "logprob": p} for t, p in entry.top],
    }


async def _stream(generation: Generation, include_usage: bool) -> AsyncGenerator[bytes, None]:
    head = _head(generation, "chat.completion.chunk")
    logprobs: list[Logprob] = []

    def chunk(delta: dict[str, Any], finish: str | None = None, usage: Usage | None = None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        if logprobs:
            choice["logprobs"] = {"content": [_logprob(p) for p in logprobs]}
            logprobs.clear()
        extra = {"usage": openai.usage_json(usage)} if usage else {}
        return sse({**head, "choices": [choice], **extra})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with contextlib.aclosing(generation.events()) as items:
            async for item in items:
                if isinstance(item, Logprob):
                    logprobs.append(item)
                elif isinstance(item, Finished):
                    # Agents compact by usage: who did not ask for the extra chunk finds it in the last one.
                    yield chunk({}, openai.FINISH[item.reason], None if include_usage else item.usage)
                    if include_usage:
                        yield sse({**head, "choices": [], "usage": openai.usage_json(item.usage)})
                    yield sse("[DONE]")
                else:
                    delta = _delta(item)
                    if delta is not None:
                        yield chunk(delta)
    except FtError as error:
        generation.fail(error)
        yield sse(openai.error_json(error))


def _delta(item: Item) -> dict[str, Any] | None:
    if isinstance(item, Beat):
        return {"content": ""}
    if isinstance(item, TextDelta):
        return {"content": item.text}
    if isinstance(item, ThinkingDelta):
        return {"reasoning_content": item.text}
    if isinstance(item, ToolCallStart):
        function = {"name": item.name, "arguments": ""}
        return {"tool_calls": [{"index": item.index, "id": item.id, "type": "function", "function": function}]}
    if isinstance(item, ToolCallDelta):
        return {"tool_calls": [{"index": item.index, "function": {"arguments": item.arguments}}]}
    return None
