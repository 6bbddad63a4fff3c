"""Who may come in: the Host header, then the token, then the session that the URL names; a browser by a door of its own."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.api import errors
from engine.api.console_door import Door
from engine.errors import FtError, Unauthorized
from engine.front.sessions import Sessions

# Without a token these say only that something listens.
_OPEN = {"/health", "/ready"}
_HELLO = re.compile(r"(/s/[^/]+)?(/api/hello|/)?")
_SESSION = re.compile(r"/s/([^/]+)(/.*)?")


class Gate:
    """ASGI middleware. Lets a request through with `state.session` set, or answers it in its dialect's error shape."""

    def __init__(self, app: ASGIApp, sessions: Sessions, door: Door) -> None:
        self._app = app
        self._sessions = sessions
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            try:
                self._admit(scope)
            except FtError as error:
                await errors.response(error, errors.dialect_of(scope["path"]))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        path: str = scope["path"]
        if _host_name(headers.get("host", "")) not in ("127.0.0.1", "localhost", "::1"):
            raise errors.Forbidden("The Host header is not a name of this machine.", "Use http://127.0.0.1:PORT.")
        state = scope.setdefault("state", {})
        if self._door.covers(path):
            self._door.admit(scope, headers)
            return
        if path in _OPEN or (scope["method"] in ("GET", "HEAD") and _HELLO.fullmatch(path)):
            state["session"] = self._sessions.default
            return
        match = _SESSION.fullmatch(path)
        session_id = match[1] if match else None
        found = (self._sessions.authenticate(session_id, token) for token in _tokens(headers))
        session = next((s for s in found if s is not None), None)
        if session is None:
            raise Unauthorized(
                "The token is missing or does not open this address.", "See engine.json, or POST /v1/sessions."
            )
        state["session"] = session


def _tokens(headers: Headers) -> list[str]:
    """The bearer token and a non-empty x-api-key, as far as sent: agents may carry a blank or stale one beside ours."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    tokens = [value.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "").strip()]
    return [token for token in tokens if token]


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets. The port is the connection's own and proves nothing."""
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d{1,5})?", host.strip().lower())
    return (match[1] or match[2] or "") if match else ""
