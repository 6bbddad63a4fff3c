"""What OpenAI's two generating dialects have in common: how an answer begins, is counted, ends and fails."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.api import errors, fields, generate
from engine.errors import FtError, Unsupported
from engine.front import generation as generations
from engine.front.context import Front
from engine.front.generation import Generation
from engine.front.items import Ask, Usage

FINISH = {"stop": "stop", "stop_string": "stop", "tool_use": "tool_calls", "length": "length"}

Stream = Callable[[Generation, bool], AsyncGenerator[bytes, None]]
Whole = Callable[[Generation], Awaitable[dict[str, Any]]]


def one_choice(body: Mapping[str, Any]) -> None:
    """Raises Unsupported for more than one choice."""
    if (fields.get(body, "n", int) or 1) != 1:
        raise Unsupported("n: only one choice per request is served.", "Leave n out and send several requests.")


def common(front: Front, body: Mapping[str, Any], api: str, logprobs: int | None) -> dict[str, Any]:
    """The fields of `Ask` that both dialects say alike. Raises Unsupported or BadRequest."""
    one_choice(body)
    return generate.common(front, body, api, logprobs=logprobs)


async def answer(request: Request, body: Mapping[str, Any], ask: Ask, stream: Stream, whole: Whole) -> Response:
    """Starts the generation and hands it to `stream`, which is told whether to end with a chunk of usage, or to `whole`.
    Errors before the first byte are raised."""
    options = fields.get(body, "stream_options", dict) or {}
    generation = await generations.start(request.app.state.front, request.state.session, ask, request.headers, body)
    usage = bool(options.get("include_usage"))
    return generate.answer(
        generation, lambda: stream(generation, usage), lambda: whole(generation), dialect=errors.OPENAI
    )


def head(generation: Generation, prefix: str, kind: str) -> dict[str, Any]:
    """The fields that an answer, or each chunk of one, begins with."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": generation.ask.model,
    }


def usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def error_json(error: FtError) -> dict[str, Any]:
    """An error inside a stream that has begun."""
    return errors.openai_body(error, errors.status_of(error))
