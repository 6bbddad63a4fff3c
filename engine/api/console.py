"""The web console below /dashboard: its files, a way in, and the control routes that it may use."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import fields
from engine.errors import BadRequest, NotFound
from engine.front.console.files import HEADERS, files
from engine.front.console.grants import CODE_S, GRANT_S
from engine.front.context import Front

PATH = "/dashboard"
KEY = "x-ft-console"
PRICES = ("input", "cached", "output")
# Of the control routes: what tells, and who has the memory. Nothing that hands out a token or ends anything.
ROUTES = frozenset(
    (
        "/ready",
        "/v1/sessions",
        "/v1/stats",
        "/v1/requests",
        "/v1/engine/life",
        "/v1/engine/experts",
        "/v1/engine/forecast",
        "/v1/engine/events",
        "/v1/engine/memory",
        "/v1/engine/memory/plan",
        "/v1/engine/memory/apply",
    )
)
MAY_POST = frozenset(("/v1/engine/memory/plan", "/v1/engine/memory/apply"))


def cookie_name(port: int) -> str:
    """One for each port: browsers keep cookies of all ports of a machine together."""
    return f"ft_console_{port}"


async def page(request: Request) -> Response:
    """GET /dashboard and /dashboard/{name}: the page, open to all. It holds nothing of the engine's."""
    file = files().get(request.path_params.get("name", "index.html"))
    if file is None:
        raise NotFound("There is no such file.", f"See {PATH}.")
    return Response(file.content, media_type=file.media_type, headers=HEADERS)


async def invite(request: Request) -> Response:
    """POST /v1/engine/console {"prices": {"input", "cached", "output"} | null}: a one-time code for a browser of this machine."""
    front: Front = request.app.state.front
    body = await fields.read_json(request)
    code = front.grants.invite({"prices": _prices(body)})
    url = f"http://127.0.0.1:{front.port}{PATH}#{code}"
    return JSONResponse({"url": url, "code": code, "expires_s": CODE_S}, headers={"cache-control": "no-store"})


def _prices(body: dict[str, Any]) -> dict[str, float] | None:
    given = fields.get(body, "prices", dict)
    if given is None:
        return None
    prices = {name: fields.need(given, name, float, "prices.") for name in PRICES}
    for name, value in prices.items():
        if not math.isfinite(value) or value < 0:
            raise BadRequest(f"prices.{name}: expected a price of 0 or more.")
    return prices


async def enter(request: Request) -> Response:
    """POST /dashboard/enter {"code"}: the page's key, and the cookie that goes with it."""
    front: Front = request.app.state.front
    grant = front.grants.enter(fields.need(await fields.read_json(request), "code", str))
    answer = JSONResponse({"key": grant.key}, headers={"cache-control": "no-store"})
    answer.set_cookie(
        cookie_name(front.port), grant.cookie, max_age=int(GRANT_S), path=PATH, httponly=True, samesite="strict"
    )
    return answer


async def leave(request: Request) -> Response:
    """POST /dashboard/leave: the page's grant ends."""
    front: Front = request.app.state.front
    front.grants.leave(request.cookies.get(cookie_name(front.port), ""), request.headers.get(KEY, ""))
    answer = JSONResponse({"left": True})
    answer.delete_cookie(cookie_name(front.port), path=PATH, httponly=True, samesite="strict")
    return answer


async def about(request: Request) -> Response:
    """GET /dashboard/about: what the person who opened the page has set: reference prices, null where none."""
    return JSONResponse(request.state.about)
