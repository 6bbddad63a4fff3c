"""`/v1/completions`: a raw prompt and its continuation, without a template."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.api import collect, fields, openai
from engine.api.stream import sse
from engine.errors import BadRequest, FtError, Unsupported
from engine.front.context import Front
from engine.front.generation import Generation
from engine.front.items import Ask, Beat, Finished, Logprob, Usage
from engine.prompt.conversation import Text
from engine.prompt.output import TextDelta

DEFAULT_MAX_TOKENS = 16  # what this dialect promises when the request does not say


async def completions(request: Request) -> Response:
    """POST /v1/completions with one prompt. Raises Unsupported for echo, suffix and several prompts or choices."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    for name in ("echo", "suffix"):
        if body.get(name):
            raise Unsupported(f"{name}: is not served.", f"Leave {name} out.")
    if (fields.get(body, "best_of", int) or 1) != 1:
        raise Unsupported("best_of: only one is served.", "Leave best_of out.")
    logprobs = fields.get(body, "logprobs", int)
    if not -1 <= (logprobs or 0) <= 20:
        raise BadRequest(f"logprobs: {logprobs} is not between 0 and 20.")
    text, tokens = _prompt(body.get("prompt"), front.language.vocab_size)
    ask = Ask(
        conversation=None,
        text=text,
        tokens=tokens,
        max_tokens=fields.positive(body, "max_tokens") or DEFAULT_MAX_TOKENS,
        **openai.common(front, body, "completions", logprobs),
    )
    return await openai.answer(request, body, ask, _stream_ids if body.get("return_token_ids") else _stream, _whole)


def _prompt(value: Any, vocabulary: int) -> tuple[str | None, tuple[int, ...] | None]:
    """A text, or token ids. Raises BadRequest for what is neither."""
    if isinstance(value, list) and value and all(type(v) is int for v in value):
        if not all(0 <= v < vocabulary for v in value):
            raise BadRequest(f"prompt: a token id is outside of 0 to {vocabulary - 1}.")
        return None, tuple(value)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        raise Unsupported("prompt: only one prompt per request is served.", "Send one request per prompt.")
    if not isinstance(value, str) or not value:
        raise BadRequest("prompt: expected a string that is not empty.")
    return value, None


def _head(generation: Generation) -> dict[str, Any]:
    return openai.head(generation, "cmpl", "text_completion")


def _logprobs(entries: list[Logprob]) -> dict[str, Any] | None:
    if not entries:
        return None
    offsets, at = [], 0
    for entry in entries:
        offsets.append(at)
        at += len(entry.token)
    return {
        "tokens": [e.token for e in entries],
        "token_logprobs": [e.logprob for e in entries],
        "top_logprobs": [dict(e.top) for e in entries],
        "text_offset": offsets,
    }


async def _whole(generation: Generation) -> dict[str, Any]:
    finished, logprobs = await collect.run(generation)
    text = "".join(b.text for b in generation.answer.blocks() if isinstance(b, Text))
    choice = {
        "index": 0,
        "text": text,
        "finish_reason": openai.FINISH[finished.reason],
        "logprobs": _logprobs(logprobs),
    }
    return {**_head(generation), "choices": [choice], "usage": openai.usage_json(finished.usage)}


def _stream(generation: Generation, include_usage: bool) -> AsyncGenerator[bytes, None]:
    return _chunks(generation, include_usage, with_ids=False)


def _stream_ids(generation: Generation, include_usage: bool) -> AsyncGenerator[bytes, None]:
    """Each chunk with `token_ids`: those generated since the chunk before, which may be ahead of its text."""
    return _chunks(generation, include_usage, with_ids=True)


async def _chunks(generation: Generation, include_usage: bool, with_ids: bool) -> AsyncGenerator[bytes, None]:
    head, told = _head(generation), 0

    def chunk(text: str, finish: str | None = None, usage: Usage | None = None) -> bytes:
        nonlocal told
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
        if with_ids:
            choice["token_ids"] = generation.ids[told:]
            told = len(generation.ids)
        return sse({**head, "choices": [choice], **({"usage": openai.usage_json(usage)} if usage else {})})

    yield chunk("")
    try:
        async with contextlib.aclosing(generation.events()) as items:
            async for item in items:
                if isinstance(item, TextDelta):
                    yield chunk(item.text)
                elif isinstance(item, Beat):
                    yield chunk("")
                elif isinstance(item, Finished):
                    yield chunk("", openai.FINISH[item.reason], None if include_usage else item.usage)
                    if include_usage:
                        yield sse({**head, "choices": [], "usage": openai.usage_json(item.usage)})
                    yield sse("[DONE]")
    except FtError as error:
        generation.fail(error)
        yield sse(openai.error_json(error))
