"""What all dialects have in common: the fields of a request that mean the same everywhere, and how its answer goes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response

from engine.api import errors, fields
from engine.api.stream import EventStream, WholeAnswer, marks
from engine.front import generation as generations
from engine.front.context import Front
from engine.front.generation import Generation


def common(
    front: Front, body: Mapping[str, Any], api: str, stop: str = "stop", logprobs: int | None = None
) -> dict[str, Any]:
    """The fields of `Ask` that every dialect says alike; `stop` is what it calls the strings that end an answer. Raises BadRequest."""
    given = fields.sampling(body, front.language.vocab_size)
    if logprobs is not None:
        given["logprobs"] = logprobs
    return {
        "api": api,
        "model": fields.get(body, "model", str) or front.model,
        "stream": bool(fields.get(body, "stream", bool)),
        "sampling": generations.with_defaults(front.sampling_defaults, given),
        "stop": fields.stop_strings(body, stop),
    }


def answer(
    generation: Generation,
    stream: Callable[[], AsyncGenerator[bytes, None]],
    whole: Callable[[], Awaitable[dict[str, Any]]],
    dialect: str,
) -> Response:
    """The one that was asked for; the generation is closed when it is over, however it ends."""
    if generation.ask.stream:
        return EventStream(stream(), generation.close, marks(generation))
    return WholeAnswer(whole, lambda error: errors.response(error, dialect), generation.close, marks(generation))
