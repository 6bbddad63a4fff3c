"""The dashboard's one HTTP client: short questions and one stream of events, all on the event loop, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ftagent.local_engine.client import EngineUrl

MOST_BYTES = 64 << 20
SILENCE_S = 60.0  # the front beats more often than that


class Unreachable(Exception):
    """Nobody answered, or not in time, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """`id` None: not one that can be resumed from."""

    id: int | None
    kind: str
    data: dict[str, Any]


class Http:
    """Asks one engine. HTTP/1.0, so that an answer ends with its connection."""

    def __init__(self, url: EngineUrl, token: str | None) -> None:
        self.url = url
        self._token = token

    async def call(self, method: str, path: str, body: Any = None, timeout_s: float = 5.0) -> tuple[int, Any]:
        """Status and decoded JSON (None when it is none). Raises Unreachable."""
        try:
            async with asyncio.timeout(timeout_s), self._opened(method, path, body) as (status, reader):
                raw = await reader.read(MOST_BYTES)
                while chunk := await reader.read(MOST_BYTES):
                    raw += chunk
                    if len(raw) > MOST_BYTES:
                        raise Unreachable("too long an answer")
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None
        try:
            return status, json.loads(raw) if raw else None
        except ValueError:
            return status, None

    async def get(self, path: str, timeout_s: float = 5.0) -> dict[str, Any] | None:
        """The JSON object of a good answer, else None. Raises Unreachable."""
        status, body = await self.call("GET", path, timeout_s=timeout_s)
        return body if status < 400 and isinstance(body, dict) else None

    async def events(self, path: str, after: int) -> AsyncIterator[ServerEvent]:
        """Those with ids above `after`, and those without ids, until the stream ends. Raises Unreachable."""
        try:
            async with self._opened("GET", path, None, {"Last-Event-ID": str(after)}) as (status, reader):
                if status >= 400:
                    raise Unreachable(f"status {status}")
                async for event in _parse(reader):
                    yield event
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, body: Any, more: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
        secure = ssl.create_default_context() if self.url.scheme == "https" else None
        reader, writer = await asyncio.open_connection(self.url.host, self.url.port, ssl=secure, limit=1 << 22)
        try:
            payload = b"" if body is None else json.dumps(body).encode()
            shown = f"[{self.url.host}]" if ":" in self.url.host else self.url.host
            headers = {"Host": f"{shown}:{self.url.port}", "Accept": "*/*", **(more or {})}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            if body is not None:
                headers |= {"Content-Type": "application/json", "Content-Length": str(len(payload))}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"{method} {path} HTTP/1.0\r\n{head}\r\n".encode() + payload)
            await writer.drain()
            async with asyncio.timeout(SILENCE_S):
                status = int((await reader.readline()).split(b" ", 2)[1])
                while (await reader.readline()).strip():
                    pass
            yield status, reader
        except IndexError:
            raise Unreachable("no HTTP answer") from None
        finally:
            writer.close()


async def _parse(reader: asyncio.StreamReader) -> AsyncIterator[ServerEvent]:
    id_: int | None = None
    kind = ""
    while True:
        async with asyncio.timeout(SILENCE_S):
            line = await reader.readline()
        if not line:
            return
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if name == "id" and value.isdecimal():
            id_ = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data = json.loads(value)
            if isinstance(data, dict):
                yield ServerEvent(id_, kind, data)
            id_, kind = None, ""
