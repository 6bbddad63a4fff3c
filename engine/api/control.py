"""What launchers and dashboards ask: health, readiness, sessions, statistics, records, events, metrics, stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.api.stream import EventStream, sse
from engine.errors import BadRequest, NotFound, Unsupported, WorkerGone
from engine.front import draft as drafting
from engine.front import history
from engine.front.context import VERSION, Front
from engine.front.records import RING, SCHEMA
from engine.front.sessions import SESSION_ID

PREFETCH_S = 2.0  # what a launcher waits for an answer; the work goes on


async def health(request: Request) -> Response:
    """GET /health: the front is alive. Open to all, so it says nothing about the work."""
    front: Front = request.app.state.front
    return JSONResponse({"status": "ok", "nonce": front.nonce, "pid": os.getpid(), "version": VERSION})


async def ready(request: Request) -> Response:
    """GET /ready: 200 once a real forward has succeeded, else 503 with what is going on."""
    front: Front = request.app.state.front
    state = ready_json(front)
    if state["state"] == "ready":
        return JSONResponse(state)
    return JSONResponse(state, status_code=503, headers={"retry-after": "1"})


def ready_json(front: Front) -> dict[str, Any]:
    """The worker's state for people: `progress` between 0 and 1, `eta_s` from the rate since this state began."""
    worker = front.supervisor.worker
    progress = worker.done / worker.total if worker.total else None
    elapsed_s = time.time() - worker.since
    return {
        "state": worker.state,
        "serves": worker.serves,
        "phase": worker.phase or None,
        "progress": progress,
        "eta_s": elapsed_s * (1 - progress) / progress if progress else None,
        "window": front.window,
        "kv_tokens": worker.kv_tokens or None,
        "model": front.model,
        "stops_in_s": front.idle.left_s(),
        "code": worker.code or None,
        "message": worker.message or None,
        "hint": worker.hint or None,
        "warning": worker.warning or None,
        "restarts": worker.restarts,
        "worker_pid": worker.pid or None,
        "cannot": front.supervisor.cannot(),
    }


async def create_session(request: Request) -> Response:
    """POST /v1/sessions. The only answer that ever carries the session's token."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    _refuse_when_ending(front)
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


async def list_sessions(request: Request) -> Response:
    """GET /v1/sessions."""
    front: Front = request.app.state.front
    return JSONResponse({"sessions": [_facts(front, s.json()) for s in front.sessions.all()]})


async def get_session(request: Request) -> Response:
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


async def delete_session(request: Request) -> Response:
    """DELETE /v1/sessions/{id}: its token opens nothing any more; running requests end by themselves."""
    front: Front = request.app.state.front
    front.sessions.delete(request.path_params["id"])
    _forget(front, request.path_params["id"])
    return JSONResponse({"deleted": True})


async def forget_session(request: Request) -> Response:
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


async def session_turns(request: Request) -> Response:
    """GET /v1/sessions/{id}/turns?limit=N&texts=1: its request records, oldest first; texts around each break if asked.

    They outlive the session, as far as the ring of records reaches.
    """
    front: Front = request.app.state.front
    session_id = front.sessions.facts(request.path_params["id"])["id"]
    texts = request.query_params.get("texts", "") not in ("", "0")
    return JSONResponse({"schema": SCHEMA, "turns": front.records.newest(_limit(request), session_id, texts)})


async def session_draft(request: Request) -> Response:
    """GET /v1/sessions/{id}/draft: a declaration drafted from what the session's client was seen to do.

    404 for one whose declaration was verified: nothing of that is watched.
    """
    front: Front = request.app.state.front
    session = front.sessions.watched(request.path_params["id"])
    assert session.observer is not None
    return JSONResponse(drafting.draft(session.observer.evidence, session.harness, session.version))


async def requests(request: Request) -> Response:
    """GET /v1/requests?limit=N&running=1: the newest request records of all sessions, oldest first; running ones alone if asked."""
    front: Front = request.app.state.front
    running = request.query_params.get("running", "") not in ("", "0")
    return JSONResponse({"schema": SCHEMA, "requests": front.records.newest(_limit(request), running=running)})


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(RING))
    return fields.count(text, "limit")


async def stats(request: Request) -> Response:
    """GET /v1/stats: the front's counters and the worker's own snapshot (null while there is none)."""
    front: Front = request.app.state.front
    sessions = front.sessions.all()
    return JSONResponse(
        {
            "schema": "ft.stats/1",
            "model": front.model,
            "version": VERSION,
            "uptime_s": time.time() - front.started,
            "window": front.window,
            "running": front.records.running(),
            "at_worker": front.supervisor.running(),
            "sessions": len(sessions),
            "scripted": any(s.script is not None for s in sessions),
            "anticipation": {**front.anticipation.json(), "predictions": front.sessions.predictions()},
            "forecast": front.forecast.error(),
            "worker": asdict(front.supervisor.worker),
            "engine": await front.supervisor.stats(),
        }
    )


async def events(request: Request) -> Response:
    """GET /v1/engine/events: server-sent events with ids; `Last-Event-ID` (or ?after=) resumes."""
    front: Front = request.app.state.front
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    after = None if text is None else fields.count(text, "Last-Event-ID")

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield sse({"kind": "hello", **ready_json(front)}, "hello")
        async for event in front.bus.subscribe(after, front.heartbeat_s):
            if event is None:
                yield b": alive\n\n"
            else:
                yield sse(event[2], event[1], event[0])

    return EventStream(chunks(), lambda: None)


async def use(request: Request) -> Response:
    """POST /v1/engine/use: somebody is about to use it, so an idle engine stays. 503 when it is ending already."""
    front: Front = request.app.state.front
    _refuse_when_ending(front)
    front.idle.touch()
    return JSONResponse({"stops_in_s": front.idle.left_s()})


def _refuse_when_ending(front: Front) -> None:
    if front.stop_asked.is_set():
        raise WorkerGone("The engine is ending.", "Start it again: ft engine start")


async def stop(request: Request) -> Response:
    """POST /v1/engine/stop: answers at once; running work is drained, then the process ends."""
    front: Front = request.app.state.front
    front.stop_asked.set()
    return JSONResponse({"stopping": True}, status_code=202)


async def stop_when_idle(request: Request) -> Response:
    """POST /v1/engine/idle {"after_s": number | null, "leases": folder}: end when nobody has used it for so long."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    after_s, leases = body.get("after_s"), body.get("leases")
    if after_s is not None and (isinstance(after_s, bool) or not isinstance(after_s, int | float) or after_s <= 0):
        raise BadRequest("after_s: expected a positive number of seconds, or null.")
    if leases is not None and not isinstance(leases, str):
        raise BadRequest("leases: expected a folder.")
    seen: list[str] = []

    def busy() -> bool:
        newest = [str(record["id"]) for record in front.records.newest(1)]
        came, seen[:] = newest != seen, newest
        coming = front.supervisor.worker.state not in ("ready", "crashed")
        return came or coming or bool(front.supervisor.running())

    front.idle.stop_after(after_s, Path(leases) if leases else None, busy, front.stop_asked.set)
    return JSONResponse({"after_s": after_s})


async def metrics(request: Request) -> Response:
    """GET /metrics, for Prometheus."""
    front: Front = request.app.state.front
    return Response(front.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def embeddings(request: Request) -> Response:
    """POST /v1/embeddings is refused: the served model generates text."""
    raise Unsupported("This engine serves no embeddings.", "Use an embedding server for that.")
