"""What launchers and dashboards ask: health, readiness, statistics, records, events, metrics, idle, stop."""

from __future__ import annotations

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
from engine.errors import BadRequest, Unsupported, WorkerGone
from engine.front.context import VERSION, Front
from engine.front.records import RING, SCHEMA


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


async def requests(request: Request) -> Response:
    """GET /v1/requests?limit=N&running=1: the newest request records of all sessions, oldest first; running ones alone if asked."""
    front: Front = request.app.state.front
    running = request.query_params.get("running", "") not in ("", "0")
    return JSONResponse(
        {"schema": SCHEMA, "requests": front.records.newest(fields.limit(request, RING), running=running)}
    )


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
    refuse_when_ending(front)
    front.idle.touch()
    return JSONResponse({"stops_in_s": front.idle.left_s()})


def refuse_when_ending(front: Front) -> None:
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
