"""Saved states by hand: one is pinned, let go of, or dropped; or all that no session wants."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.api.errors import Slow
from engine.errors import BadRequest, NotFound
from engine.front.context import Front

ANSWER_S = 30.0
ACTS = ("pin", "unpin", "drop", "gc")


async def act(request: Request) -> Response:
    """POST /v1/engine/anchors/{act}: pin, unpin and drop {id, position, line} as /v1/stats lists them; gc {}.
    `ft.anchors-act/1`: how many were dropped, their bytes, and how many are pinned now."""
    front: Front = request.app.state.front
    do = request.path_params["act"]
    if do not in ACTS:
        raise NotFound(f"{request.method} {request.url.path} does not exist here.")
    asked = {} if do == "gc" else _named(await fields.read_json(request))
    answer = await front.supervisor.memory(ANSWER_S, op="anchors", do=do, **asked)
    if answer is None:
        raise Slow(f"The worker has not answered for {ANSWER_S:.0f} s; it is busy.", "It will be done; look again.")
    return JSONResponse(answer)


def _named(body: dict[str, Any]) -> dict[str, Any]:
    """Raises BadRequest."""
    line, position, id_ = fields.get(body, "line", str), fields.positive(body, "position"), body.get("id")
    if line is None or position is None or not isinstance(id_, str | int) or isinstance(id_, bool):
        raise BadRequest("id, position and line name a saved state.", "Take them from ft ctl anchors --json.")
    return {"id": str(id_), "position": position, "line": line}
