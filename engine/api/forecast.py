"""GET /v1/engine/forecast: when the first token of a prompt would come, and how far earlier answers to that were off."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.front.context import Front
from engine.front.work import Floor

SCHEMA = "ft.forecast/1"


async def forecast(request: Request) -> Response:
    """?new=N&cached=N[&tier=disk][&session=ID]: tokens to compute behind tokens that are at hand, in memory or on disk.

    With `session` the numbers left out are those of its last request: `cached` is its prompt and reply. Unknown is null.
    """
    front: Front = request.app.state.front
    asked = request.query_params
    new = fields.count(asked.get("new", "0"), "new")
    cached = fields.count(asked.get("cached", "0"), "cached")
    if asked.get("session"):
        session = front.sessions.facts(asked["session"])["id"]
        last = next(iter(front.records.newest(1, session)), None)
        if last is not None and "cached" not in asked:
            cached = (last["prompt_tokens"] or 0) + (last["output_tokens"] or 0)
    floor = Floor.of(await front.supervisor.stats(), front.forecast.pool)
    made = front.forecast.predict(new, cached, front.records.prefilling(), asked.get("tier") == "disk", floor)
    return JSONResponse(
        {"schema": SCHEMA, "model": front.model, "new": new, "cached": cached, **made.json(), **_quality(front)}
    )


def _quality(front: Front) -> dict[str, object]:
    error = front.forecast.error()
    return {"p90_error": error["p90_error"], "checked": error["checked"]}
