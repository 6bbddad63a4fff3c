"""What the machine draws, for receipts and dashboards."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.front.power import Power


async def power(request: Request) -> Response:
    """GET /v1/engine/power: `ft.power/1`; null where no meter can be read."""
    meters: Power = request.app.state.power
    return JSONResponse(meters.json())
