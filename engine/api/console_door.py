"""Who may use /dashboard: anybody has the page's files, and only a page of our own with both halves of a grant has more."""

from __future__ import annotations

import re
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import Scope

from engine.api import errors
from engine.api.console import KEY, MAY_POST, PATH, ROUTES, cookie_name
from engine.errors import NotFound, Unauthorized
from engine.front.context import Front

_OPEN = re.compile(rf"{PATH}(/[a-z_]+\.(js|css|svg))?")
_OWN = ("/enter", "/leave", "/about")


class Door:
    """Beside the Gate, which has looked at the Host header already."""

    def __init__(self, front: Front) -> None:
        self._front = front

    @staticmethod
    def covers(path: str) -> bool:
        return path == PATH or path.startswith(f"{PATH}/")

    def admit(self, scope: Scope, headers: Headers) -> None:
        """Sets `state.about` for a page with a grant. Raises Forbidden, NotFound or Unauthorized."""
        path, method = scope["path"], scope["method"]
        if _OPEN.fullmatch(path):
            return
        route = path.removeprefix(PATH)
        if route not in _OWN and route not in (
            MAY_POST if method == "POST" else ROUTES if method in ("GET", "HEAD") else ()
        ):
            raise NotFound(f"{method} {path} does not exist here.")
        _require_own_page(headers, method)
        if route == "/enter":
            return
        about = self._front.grants.about(_cookie(headers, cookie_name(self._front.port)), headers.get(KEY, ""))
        if about is None:
            raise Unauthorized("This page has no grant, or an old one.", "Open it anew: ft console")
        scope["state"] |= {"session": self._front.sessions.default, "about": about}


def _require_own_page(headers: Headers, method: str) -> None:
    """Raises Forbidden for what a page of another origin sends, also of another port of this machine. Browsers leave `Origin`
    out of a page's own GET; there `Sec-Fetch-Site` says it, and the key is a header that no other page can send unasked."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    own = origin == f"http://{headers.get('host', '').strip().lower()}" or (origin is None and method != "POST")
    if not own or site != "same-origin":
        raise errors.Forbidden("Another page's origin asks for the console.", "Open it with: ft console")


def _cookie(headers: Headers, name: str) -> str:
    for line in headers.getlist("cookie"):
        try:
            found = SimpleCookie(line).get(name)
        except CookieError:
            continue
        if found is not None:
            return found.value
    return ""
