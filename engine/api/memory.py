"""The memory of a running engine: the map, what a change would give, and the change itself, while requests go on."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.api.errors import Slow
from engine.errors import BadRequest
from engine.front.context import Front
from engine.memory.amounts import MIN_KV_TOKENS, TOO_FEW
from engine.memory.presets import NAMES
from engine.memory.report import MOVE_SCHEMA, Now, memory_map, start_split

ANSWER_S = 30.0  # a worker in the middle of a long chunk answers after it


async def memory(request: Request) -> Response:
    """GET /v1/engine/memory: `ft.memory/1`; before the worker is ready the plan's sizes."""
    front: Front = request.app.state.front
    state = front.supervisor.worker.state
    if front.plan is not None and state != "ready":
        now = Now(start_split(front.plan), front.plan.room_slabs, preset=front.plan.preset)
        return JSONResponse(memory_map(front.plan, now, state=state))
    return JSONResponse(_told(await front.supervisor.memory(ANSWER_S, op="map")))


async def plan(request: Request) -> Response:
    """POST /v1/engine/memory/plan {moe_slots, kv_tokens, preset, auto}: `ft.memory-move/1`, predicted; nothing is changed."""
    front: Front = request.app.state.front
    asked = _asked(await fields.read_json(request))
    return JSONResponse(_told(await front.supervisor.memory(ANSWER_S, op="plan", **asked)))


async def apply(request: Request) -> Response:
    """POST /v1/engine/memory/apply, as `plan`: done between two steps of what runs. 200 with what was done and what the rest
    waits for; 202 when the worker has not come to it yet: it will."""
    front: Front = request.app.state.front
    asked = _asked(await fields.read_json(request))
    answer = await front.supervisor.memory(ANSWER_S, op="apply", **asked)
    if answer is not None:
        return JSONResponse(answer)
    later = dict.fromkeys(("why", "now", "then", "seconds_to_apply", "moved"))
    waits = {"applied": True, "possible": True, "complete": False, "waits_for": "the step that is computed now"}
    return JSONResponse({"schema": MOVE_SCHEMA, **later, **waits}, status_code=202)


def _told(answer: dict[str, Any] | None) -> dict[str, Any]:
    if answer is None:
        raise Slow(f"The worker has not answered for {ANSWER_S:.0f} s; it is busy.", "Ask again: ft ctl cache")
    return answer


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of the worker's message. Raises BadRequest."""
    slots, tokens = fields.positive(body, "moe_slots"), fields.positive(body, "kv_tokens")
    if tokens is not None and tokens < MIN_KV_TOKENS:
        raise BadRequest(f"kv_tokens: {tokens} is {TOO_FEW}.", f"Give {MIN_KV_TOKENS} or more.")
    preset, auto = fields.get(body, "preset", str), bool(fields.get(body, "auto", bool))
    if preset is not None and preset not in NAMES:
        raise BadRequest(f"preset: {preset[:40]!r} is none of {', '.join(NAMES)}.")
    if auto and (slots or tokens or preset not in (None, "auto")):
        raise BadRequest("auto: goes with no size and no preset.", "Ask for one or the other.")
    if not (slots or tokens or preset or auto):
        raise BadRequest("Nothing is asked for.", "Give moe_slots, kv_tokens, preset or auto.")
    return {"moe_slots": slots, "kv_tokens": tokens, "preset": preset, "auto": auto or preset == "auto"}
