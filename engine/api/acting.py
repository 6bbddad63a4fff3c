"""What a dashboard does and asks beyond `control`: the life of the engine, its experts, and keys that act on requests."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.api.errors import Slow
from engine.errors import BadRequest
from engine.front.context import Front

ANSWER_S = 30.0


async def life(request: Request) -> Response:
    """GET /v1/engine/life: `ft.life/1`: states it went through, how workers ended, whether admission is paused."""
    front: Front = request.app.state.front
    told: dict[str, Any] = {"schema": "ft.life/1", **front.bus.life.json()}
    backend = front.supervisor
    return JSONResponse({**told, "restarts_left": backend.restarts_left(), "paused": backend.paused})


async def pause(request: Request) -> Response:
    """POST /v1/engine/pause {"on": bool}: while on, requests wait with heartbeats, and what runs goes on."""
    front: Front = request.app.state.front
    on = (await fields.read_json(request)).get("on")
    if not isinstance(on, bool):
        raise BadRequest("on: expected true or false.")
    front.supervisor.pause(on)
    front.bus.publish("pause", {"on": on})
    return JSONResponse({"paused": front.supervisor.paused})


async def experts(request: Request) -> Response:
    """GET /v1/engine/experts: `ft.experts/1`: use and residency of each expert, and the curve of misses by slots."""
    front: Front = request.app.state.front
    answer = await front.supervisor.memory(ANSWER_S, op="experts")
    if answer is None:
        raise Slow(f"The worker has not answered for {ANSWER_S:.0f} s; it is busy.", "Ask again.")
    return JSONResponse(answer)


async def cancel(request: Request) -> Response:
    """POST /v1/requests/{id}/cancel: its client gets an error, which most agents answer by sending it again."""
    front: Front = request.app.state.front
    front.acting.cancel(request.path_params["id"])
    return JSONResponse({"cancelled": True})


async def beat(request: Request) -> Response:
    """POST /v1/requests/{id}/beat: its client gets a heartbeat now."""
    front: Front = request.app.state.front
    front.acting.beat(request.path_params["id"])
    return JSONResponse({"sent": True})
