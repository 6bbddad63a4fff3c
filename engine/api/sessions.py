"""Sessions over HTTP: registered, listed, warmed up, ended, forgotten; what each did."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import control, fields
from engine.errors import NotFound, Unsupported
from engine.front import draft as drafting
from engine.front import history
from engine.front.context import Front
from engine.front.records import RING, SCHEMA
from engine.front.sessions import SESSION_ID

PREFETCH_S = 2.0  # what a launcher waits for an answer; the work goes on


async def create(request: Request) -> Response:
    """POST /v1/sessions. The only answer that ever carries the session's token."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    control.refuse_when_ending(front)
    if body.get("script") and "scripts" in front.supervisor.cannot():
        raise Unsupported(f"script: {front.supervisor.cannot()['scripts']}", "Play scripts on an engine of its own.")
    session = front.sessions.create(body)
    front.idle.touch()
    evicted = front.sessions.evict()
    if evicted is not None:
        _forget(front, evicted)
    head = front.heads.expected(session)
    if head is not None and front.heads.tails.of(session.id) is None:
        front.anticipation.begins(session.id, head)
    base = f"http://{_authority(request, front)}/s/{session.id}"
    front.bus.publish("session", {"session": session.id, "change": "created", "harness": session.harness or None})
    urls = {"anthropic": base, "openai": f"{base}/v1"}
    answer = {"id": session.id, "token": session.token, "base_urls": urls}
    return JSONResponse({**answer, "window": front.window, "max_output": front.max_output}, status_code=201)


def _authority(request: Request, front: Front) -> str:
    host = "[::1]" if request.url.hostname == "::1" else "127.0.0.1"
    return f"{host}:{front.port}"


async def listing(request: Request) -> Response:
    """GET /v1/sessions."""
    front: Front = request.app.state.front
    return JSONResponse({"sessions": [_facts(front, s.json()) for s in front.sessions.all()]})


async def one(request: Request) -> Response:
    """GET /v1/sessions/{id}, of one that has ended too."""
    front: Front = request.app.state.front
    return JSONResponse(_facts(front, front.sessions.facts(request.path_params["id"])))


def _facts(front: Front, facts: dict[str, Any]) -> dict[str, Any]:
    """What is known of a session, with what its requests tell and where its newest prompt lies."""
    id_ = facts["id"]
    warm = front.heads.tails.warm(id_, front.lines, front.supervisor.worker.pid)
    now = front.records.state_of(id_) if facts["ended"] is None else None
    return {**facts, **history.of_session(front.records.newest(session=id_)), "warm": warm, "doing": now}


async def prefetch(request: Request) -> Response:
    """POST /v1/sessions/{id}/prefetch: bring back what the session had, while its agent starts.

    `tokens` that are there now, `of` how many, the `tier` they came from (null: nothing may be done ahead, or it takes
    longer than this answer waits), `eta_s` until the rest would be computed (null: not known).
    """
    front: Front = request.app.state.front
    session = front.sessions.get(request.path_params["id"])
    parent = session.parent if session.parent else session.id
    tail = front.heads.tails.of(session.id) or front.heads.tails.of(parent)
    answer: dict[str, Any] = {"tokens": 0, "of": 0, "tier": "gone", "eta_s": None}
    if tail is None:
        return JSONResponse(answer)
    told = front.anticipation.goes_on(session.id, tail.tokens)
    answer = {**answer, "of": len(tail.tokens), "tokens": None, "tier": None}
    if told is not None:
        await asyncio.wait({told}, timeout=PREFETCH_S)
        if told.done():
            cached, tier = told.result()["cached"] or 0, told.result().get("tier")
            eta = front.forecast.predict(len(tail.tokens) - cached, cached).ttft_p50_s
            tier = {"ram": "memory", "disk": "disk"}.get(tier or "", "gone" if not cached else "memory")
            answer = {**answer, "tokens": cached, "tier": tier, "eta_s": eta if cached < len(tail.tokens) - 1 else 0.0}
    return JSONResponse(answer)


async def delete(request: Request) -> Response:
    """DELETE /v1/sessions/{id}: its token opens nothing any more; running requests end by themselves."""
    front: Front = request.app.state.front
    front.sessions.delete(request.path_params["id"])
    _forget(front, request.path_params["id"])
    return JSONResponse({"deleted": True})


async def forget(request: Request) -> Response:
    """POST /v1/sessions/{id}/forget: end it for good. How it ended is not kept, and what only it has on disk is removed."""
    front: Front = request.app.state.front
    session_id = request.path_params["id"]
    if not SESSION_ID.fullmatch(session_id):
        raise NotFound(f"There is no session {session_id}.", "See GET /v1/sessions.")
    front.sessions.forget(session_id)
    front.lines.forget(session_id)
    front.heads.tails.forget(session_id)
    if front.heads.forget(session_id):
        await front.off_loop(front.heads.write)
    front.supervisor.forget(session_id)
    front.bus.publish("session", {"session": session_id, "change": "forgotten"})
    return JSONResponse({"forgotten": True})


def _forget(front: Front, session_id: str) -> None:
    front.heads.tails.keep(session_id, front.lines)
    front.lines.forget(session_id)
    front.bus.publish("session", {"session": session_id, "change": "deleted"})


async def turns(request: Request) -> Response:
    """GET /v1/sessions/{id}/turns?limit=N&texts=1: its request records, oldest first; texts around each break if asked.

    They outlive the session, as far as the ring of records reaches.
    """
    front: Front = request.app.state.front
    session_id = front.sessions.facts(request.path_params["id"])["id"]
    texts = request.query_params.get("texts", "") not in ("", "0")
    return JSONResponse(
        {"schema": SCHEMA, "turns": front.records.newest(fields.limit(request, RING), session_id, texts)}
    )


async def draft(request: Request) -> Response:
    """GET /v1/sessions/{id}/draft: a declaration drafted from what the session's client was seen to do.

    404 for one whose declaration was verified: nothing of that is watched.
    """
    front: Front = request.app.state.front
    session = front.sessions.watched(request.path_params["id"])
    assert session.observer is not None
    return JSONResponse(drafting.draft(session.observer.evidence, session.harness, session.version))
