"""HTTP to the engine's front with the standard library: no proxies, no redirects, a time limit on each call."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ftagent.errors import EngineNotReady, FtError, UsageError


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """`text` has no trailing slash and no path."""

    text: str
    scheme: str
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def parse_engine_url(text: str) -> EngineUrl:
    """Raises UsageError unless it is `http(s)://host[:port]`."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query or parts.username:
        raise UsageError(f"Not an engine URL: {text}", "Give scheme, host and port: --engine http://127.0.0.1:1919")
    port = port or (443 if parts.scheme == "https" else 80)
    shown = f"[{host}]" if ":" in host else host
    return EngineUrl(f"{parts.scheme}://{shown}:{port}", parts.scheme, host, port)


class EngineHttpError(FtError):
    """The engine answered with an error status; `status` and the decoded body are kept."""

    code = "FT-E0501 engine-refused"

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(f"The engine answered {status}: {message}", "ft engine logs")
        self.status = status
        self.body = body


def _message(body: Any, fallback: str) -> str:
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return error if isinstance(error, str) else fallback


class EngineClient:
    """One engine. `token` is the admin token, or a session's; None reaches only what is open."""

    def __init__(self, url: EngineUrl, token: str | None = None) -> None:
        self.url = url
        self.token = token

    @contextmanager
    def _open(
        self, method: str, path: str, body: Any, timeout_s: float
    ) -> Iterator[tuple[http.client.HTTPResponse, http.client.HTTPConnection]]:
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.host, self.url.port, timeout=timeout_s)
        headers = {"Accept": "application/json", "Connection": "close"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, payload, headers)
            yield connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            raise EngineNotReady(
                f"No answer from the engine at {self.url.text}: {error or type(error).__name__}.",
                "ft engine status",
                code="FT-E0502 engine-unreachable",
            ) from None
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None, timeout_s: float = 10.0) -> tuple[int, Any]:
        """Status and decoded JSON (None when the body is not JSON). Raises EngineNotReady when nobody answers."""
        with self._open(method, path, body, timeout_s) as (response, _):
            raw = response.read()
            status = response.status
        try:
            return status, json.loads(raw) if raw else None
        except ValueError:
            return status, None

    def get(self, path: str, timeout_s: float = 10.0) -> Any:
        return self._good("GET", path, None, timeout_s)

    def post(self, path: str, body: Any, timeout_s: float = 30.0) -> Any:
        return self._good("POST", path, body, timeout_s)

    def delete(self, path: str, timeout_s: float = 3.0) -> Any:
        return self._good("DELETE", path, None, timeout_s)

    def _good(self, method: str, path: str, body: Any, timeout_s: float) -> Any:
        status, answer = self.call(method, path, body, timeout_s)
        if status >= 400:
            raise EngineHttpError(status, _message(answer, "no reason given"), answer)
        return answer

    def stream(self, path: str, body: Any, silence_s: float = 120.0) -> Iterator[dict[str, Any]]:
        """The JSON of each server-sent `data:` line until `[DONE]` or the end. Closing the iterator hangs up."""
        with self._open("POST", path, body, silence_s) as (response, _):
            if response.status >= 400:
                raw = response.read()
                try:
                    answer = json.loads(raw)
                except ValueError:
                    answer = None
                raise EngineHttpError(response.status, _message(answer, "no reason given"), answer)
            while line := response.readline():
                text = line.decode("utf-8", "replace").strip()
                if not text.startswith("data:"):
                    continue
                text = text[5:].strip()
                if text == "[DONE]":
                    return
                yield json.loads(text)
