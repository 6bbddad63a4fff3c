"""The HTTP application: routes at the root for the admin token, and below /s/<session id> for an agent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from engine.api import (
    acting,
    anchors,
    anthropic,
    chat,
    completions,
    console,
    control,
    errors,
    forecast,
    memory,
    models,
    power,
    responses,
    sessions,
)
from engine.api.console_door import Door
from engine.api.gate import Gate
from engine.errors import FtError, NotFound
from engine.front.context import Front
from engine.front.power import Power

Handler = Callable[[Request], Awaitable[Response]]
_LOG = logging.getLogger("engine.api")

_AGENT_ROUTES: tuple[tuple[str, Handler, tuple[str, ...]], ...] = (
    ("/v1/messages", anthropic.messages, ("POST",)),
    ("/v1/messages/count_tokens", anthropic.count_tokens, ("POST",)),
    ("/v1/chat/completions", chat.completions, ("POST",)),
    ("/v1/completions", completions.completions, ("POST",)),
    ("/v1/responses", responses.create, ("POST",)),
    ("/v1/embeddings", control.embeddings, ("POST",)),
    ("/v1/models", models.listing, ("GET",)),
    ("/v1/models/{model:path}", models.one, ("GET",)),
    ("/api/hello", anthropic.hello, ("GET", "HEAD")),
    ("/", anthropic.hello, ("GET", "HEAD")),
)
_ADMIN_ROUTES: tuple[tuple[str, Handler, tuple[str, ...]], ...] = (
    ("/health", control.health, ("GET", "HEAD")),
    ("/ready", control.ready, ("GET", "HEAD")),
    ("/metrics", control.metrics, ("GET",)),
    ("/v1/sessions", sessions.create, ("POST",)),
    ("/v1/sessions", sessions.listing, ("GET",)),
    ("/v1/sessions/{id}", sessions.one, ("GET",)),
    ("/v1/sessions/{id}", sessions.delete, ("DELETE",)),
    ("/v1/sessions/{id}/forget", sessions.forget, ("POST",)),
    ("/v1/sessions/{id}/prefetch", sessions.prefetch, ("POST",)),
    ("/v1/sessions/{id}/turns", sessions.turns, ("GET",)),
    ("/v1/sessions/{id}/draft", sessions.draft, ("GET",)),
    ("/v1/stats", control.stats, ("GET",)),
    ("/v1/requests", control.requests, ("GET",)),
    ("/v1/requests/{id}/cancel", acting.cancel, ("POST",)),
    ("/v1/requests/{id}/beat", acting.beat, ("POST",)),
    ("/v1/engine/life", acting.life, ("GET",)),
    ("/v1/engine/pause", acting.pause, ("POST",)),
    ("/v1/engine/experts", acting.experts, ("GET",)),
    ("/v1/engine/anchors/{act}", anchors.act, ("POST",)),
    ("/v1/engine/power", power.power, ("GET",)),
    ("/v1/engine/forecast", forecast.forecast, ("GET",)),
    ("/v1/engine/events", control.events, ("GET",)),
    ("/v1/engine/memory", memory.memory, ("GET",)),
    ("/v1/engine/memory/plan", memory.plan, ("POST",)),
    ("/v1/engine/memory/apply", memory.apply, ("POST",)),
    ("/v1/engine/console", console.invite, ("POST",)),
    ("/v1/engine/idle", control.stop_when_idle, ("POST",)),
    ("/v1/engine/use", control.use, ("POST",)),
    ("/v1/engine/stop", control.stop, ("POST",)),
    (console.PATH, console.page, ("GET", "HEAD")),
    (f"{console.PATH}/about", console.about, ("GET",)),
    (f"{console.PATH}/enter", console.enter, ("POST",)),
    (f"{console.PATH}/leave", console.leave, ("POST",)),
)


def make_app(front: Front) -> FastAPI:
    """The application over one front. No CORS, no docs pages, no redirects."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.front = front
    app.state.power = Power.of_machine()
    for path, handler, methods in _ADMIN_ROUTES:
        app.add_route(path, handler, methods=list(methods))
        if path in console.ROUTES:
            app.add_route(console.PATH + path, handler, methods=list(methods))
    app.add_route(f"{console.PATH}/{{name}}", console.page, methods=["GET", "HEAD"])
    for prefix in ("", "/s/{session_id}"):
        for path, handler, methods in _AGENT_ROUTES:
            app.add_route(prefix + path, handler, methods=list(methods))
    app.add_exception_handler(FtError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_hang_up)
    app.add_exception_handler(Exception, _on_bug)
    app.add_middleware(Gate, sessions=front.sessions, door=Door(front))
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FtError)
    return errors.response(error, errors.dialect_of(request.url.path))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Unknown routes and methods, in the dialect of the path."""
    assert isinstance(error, HTTPException)
    asked, allowed = f"{request.method} {request.url.path}", (error.headers or {}).get("Allow", "")
    failure: FtError = NotFound(f"{asked} does not exist here.")
    if error.status_code == 405:
        failure = errors.WrongMethod(f"{asked} does not take this method.", f"It takes {allowed}.")
    answer = errors.response(failure, errors.dialect_of(request.url.path))
    answer.headers.update({"allow": allowed} if allowed else {})
    return answer


async def _on_hang_up(request: Request, error: Exception) -> Response:
    """The client left while it sent its request. Nobody reads this."""
    return Response(status_code=400)


async def _on_bug(request: Request, error: Exception) -> Response:
    """A defect of ours: the log gets the trace, the client one sentence."""
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    failure = FtError(f"The engine failed on this request ({type(error).__name__}).", "Its log has the details.")
    return errors.response(failure, errors.dialect_of(request.url.path))
