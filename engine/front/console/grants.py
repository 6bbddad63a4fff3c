"""How a browser gets in: a code that works once, for a grant of two halves of which either alone opens nothing.

One half is a cookie that no script can read; browsers send it to every port of this machine, so anybody's server here may come to
see it. The other half is a key that the page keeps for its own port and that no other page can read. Only digests are kept, in the
runtime folder, so that an open page goes on after the engine was started anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import Unauthorized

CODE_S = 120.0  # between the command that makes a code and the browser that brings it
GRANT_S = 12 * 3600.0
MAX_CODES, MAX_GRANTS = 8, 16
_FILE = "console.json"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a page has been given, once: both halves in the clear."""

    cookie: str
    key: str


class Grants:
    """`folder`: where grants outlive the process, None: they do not. Called from the front's event loop."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = folder / _FILE if folder is not None else None
        self._clock = clock
        self._codes: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._grants: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict(self._read())

    def invite(self, about: Mapping[str, Any]) -> str:
        """A code for one browser; `about` is what its page is told beside the engine's answers."""
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = (self._clock() + CODE_S, dict(about))
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def enter(self, code: str) -> Grant:
        """The grant for a code that was never used before. Raises Unauthorized."""
        until, about = self._codes.pop(_digest(code), (0.0, {}))
        if until <= self._clock():
            raise Unauthorized("This code was used before, is too old, or never was one.", "ft console")
        grant = Grant(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._grants[_both(grant.cookie, grant.key)] = (self._clock() + GRANT_S, about)
        while len(self._grants) > MAX_GRANTS:
            self._grants.popitem(last=False)
        self._write()
        return grant

    def about(self, cookie: str, key: str) -> dict[str, Any] | None:
        """What the page with these two halves was told; None when they open nothing."""
        wanted = _both(cookie, key)
        for kept, (until, about) in self._grants.items():
            if hmac.compare_digest(kept, wanted) and until > self._clock():
                return about
        return None

    def leave(self, cookie: str, key: str) -> None:
        """The grant opens nothing any more."""
        if self._grants.pop(_both(cookie, key), None) is not None:
            self._write()

    def _read(self) -> dict[str, tuple[float, dict[str, Any]]]:
        """What is there of an engine before; nothing where it cannot be read or is somebody else's doing."""
        if self._file is None:
            return {}
        try:
            kept = json.loads(self._file.read_text())
            found = {str(k): (float(v["until"]), dict(v["about"])) for k, v in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}
        return {digest: grant for digest, grant in found.items() if grant[0] > self._clock()}

    def _write(self) -> None:
        """In one step, readable by the owner only. A folder that cannot be written to costs the next start only."""
        if self._file is None:
            return
        now = self._clock()
        told = {k: {"until": until, "about": about} for k, (until, about) in self._grants.items() if until > now}
        fresh = self._file.with_name(f".{_FILE}.{os.getpid()}")
        with contextlib.suppress(OSError):
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump(told, file)
            fresh.replace(self._file)


def _both(cookie: str, key: str) -> str:
    return _digest(f"{len(cookie)}:{cookie}{key}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
