"""`/v1/models`: the one served model, with the window that was really allocated."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.errors import NotFound
from engine.front.context import Front


async def listing(request: Request) -> Response:
    """GET /v1/models, in Anthropic's shape for clients that send `anthropic-version`, else in OpenAI's."""
    front: Front = request.app.state.front
    model = _model(front)
    if "anthropic-version" in request.headers:
        return JSONResponse({"data": [model], "has_more": False, "first_id": model["id"], "last_id": model["id"]})
    return JSONResponse({"object": "list", "data": [model]})


async def one(request: Request) -> Response:
    """GET /v1/models/{id}."""
    front: Front = request.app.state.front
    asked = request.path_params["model"]
    if asked != front.model:
        raise NotFound(f"There is no model {asked!r} here.", f"The served model is {front.model}.")
    return JSONResponse(_model(front))


def _model(front: Front) -> dict[str, Any]:
    """Both vendors' fields at once: neither minds the other's."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(front.started))
    return {
        "id": front.model,
        "object": "model",
        "type": "model",
        "display_name": front.model,
        "created": int(front.started),
        "created_at": created,
        "owned_by": "local",
        "context_window": front.window,
        "context_length": front.window,
        "max_model_len": front.window,
        "max_input_tokens": front.window,
        "max_output_tokens": front.max_output,
        "max_tokens": front.max_output,
    }
