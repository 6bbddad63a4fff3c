"""`/v1/responses`: OpenAI's Responses dialect, with the full event sequence that Codex reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.api import collect, errors, fields, generate, responses_parse
from engine.api.responses_items import Items, new_id
from engine.api.stream import sse
from engine.errors import BadRequest, FtError
from engine.front import generation as generations
from engine.front.context import Front
from engine.front.generation import Generation
from engine.front.items import Ask, Beat, Finished, Logprob, Usage
from engine.front.sessions import Session


class UnknownResponse(BadRequest):
    """`previous_response_id` names nothing this session has; answering without the history would be silent amnesia."""

    code = "FT-E0416 previous-response-not-found"


class Reply:
    """What the answer to one request repeats of it, and the items so far."""

    def __init__(self, generation: Generation, body: dict[str, Any], history: list[dict[str, Any]]) -> None:
        self.generation = generation
        self.body = body
        self.history = history
        self.id = new_id("resp")
        self.created = int(time.time())

    def json(self, status: str, output: list[dict[str, Any]], usage: Usage | None = None) -> dict[str, Any]:
        """The response object; `usage` only once it is known."""
        body = self.body
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "model": self.generation.ask.model,
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
            "store": body.get("store") is not False,
            "temperature": self.generation.ask.sampling.temperature,
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": self.generation.ask.sampling.top_p,
            "truncation": "disabled",
            "usage": usage_json(usage) if usage else None,
            "metadata": body.get("metadata") or {},
        }

    def finish(self, finished: Finished, output: list[dict[str, Any]]) -> dict[str, Any]:
        """The final object; keeps the history for `previous_response_id` unless the client declined."""
        if self.body.get("store") is not False:
            self.generation.session.store_response(self.id, [*self.history, *output])
        status = "incomplete" if finished.reason == "length" else "completed"
        return self.json(status, output, finished.usage)


async def create(request: Request) -> Response:
    """POST /v1/responses. Errors before the first byte are HTTP errors, later ones `response.failed`."""
    front: Front = request.app.state.front
    session: Session = request.state.session
    body = await fields.read_json(request)
    if body.get("background"):
        raise BadRequest("background: responses are served while the client waits.", "Leave background out.")
    history = [*_previous(session, body), *responses_parse.input_items(body)]
    conversation = responses_parse.conversation(body, history)
    ask = Ask(
        conversation=conversation,
        max_tokens=fields.positive(body, "max_output_tokens"),
        **generate.common(front, body, "responses"),
    )
    generation = await generations.start(front, session, ask, request.headers, body)
    reply = Reply(generation, body, history)
    return generate.answer(generation, lambda: _stream(reply), lambda: _whole(reply), dialect=errors.OPENAI)


def usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": usage.prompt + usage.output,
    }


def _previous(session: Session, body: dict[str, Any]) -> list[dict[str, Any]]:
    previous = fields.get(body, "previous_response_id", str)
    if previous is None:
        return []
    if previous not in session.responses:
        raise UnknownResponse(
            f"Previous response with id {previous!r} not found.",
            "It was not stored, or the engine restarted since: send the whole conversation as input.",
        )
    return session.responses[previous]


async def _whole(reply: Reply) -> dict[str, Any]:
    finished, _ = await collect.run(reply.generation)
    items = Items()
    for block in reply.generation.answer.blocks():
        items.add_whole(block)
    return reply.finish(finished, items.output)


async def _stream(reply: Reply) -> AsyncGenerator[bytes, None]:
    number = 0

    def event(kind: str, **fields_: Any) -> bytes:
        nonlocal number
        data = {"type": kind, "sequence_number": number, **fields_}
        number += 1
        return sse(data, kind)

    items = Items()
    yield event("response.created", response=reply.json("in_progress", []))
    yield event("response.in_progress", response=reply.json("in_progress", []))
    try:
        async with contextlib.aclosing(reply.generation.events()) as stream:
            async for item in stream:
                if isinstance(item, Beat):
                    yield event("response.in_progress", response=reply.json("in_progress", []))
                elif isinstance(item, Finished):
                    for kind, data in items.close():
                        yield event(kind, **data)
                    final = reply.finish(item, items.output)
                    yield event(f"response.{final['status']}", response=final)
                elif not isinstance(item, Logprob):
                    for kind, data in items.add(item):
                        yield event(kind, **data)
    except FtError as error:
        reply.generation.fail(error)
        failed = reply.json("failed", items.output)
        inner = errors.openai_body(error, errors.status_of(error))["error"]
        # A code of its own would be fatal to some clients; server_error is what they retry.
        code = inner["code"] if inner["code"] == "context_length_exceeded" else "server_error"
        failed["error"] = {"code": code, "message": inner["message"]}
        yield event("response.failed", response=failed)
