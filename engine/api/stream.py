"""Server-sent events and long answers: bytes out as they come, and a hang-up noticed at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from engine.errors import FtError
from engine.front.generation import Generation

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def sse(data: Any, event: str | None = None, event_id: int | None = None) -> bytes:
    """One event. Strings are sent as they are (`[DONE]`), everything else as compact JSON."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {event}\n" if event else ""
    if event_id is not None:
        head = f"id: {event_id}\n{head}"
    return f"{head}data: {text}\n\n".encode()


class EventStream(Response):
    """Streams `chunks` and stops pulling, by cancellation, in the moment the client hangs up.

    `finish` runs in every case, also when the client is gone before the first byte.
    """

    media_type = "text/event-stream"

    def __init__(
        self, chunks: AsyncGenerator[bytes, None], finish: Callable[[], None], headers: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self._chunks = chunks
        self._finish = finish
        self._extra = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(self._send_all(send), receive)
        finally:
            self._finish()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS + self._extra})
        async with contextlib.aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class WholeAnswer(Response):
    """Waits for one JSON body, and gives up when the client does."""

    def __init__(
        self,
        make: Callable[[], Awaitable[dict[str, Any]]],
        on_error: Callable[[FtError], Response],
        finish: Callable[[], None],
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._make = make
        self._on_error = on_error
        self._finish = finish
        self._extra = headers or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            try:
                response: Response = JSONResponse(await self._make(), headers=self._extra)
            except FtError as error:
                response = self._on_error(error)
            await response(scope, receive, send)

        try:
            await until_gone(answer(), receive)
        finally:
            self._finish()


async def until_gone(work: Any, receive: Receive) -> None:
    """Run `work` until it ends, raises, or the client disconnects; it is cancelled and awaited in the last case."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def marks(generation: Generation) -> dict[str, str]:
    """Headers that every generated answer carries."""
    headers = {"request-id": generation.record.id, "x-request-id": generation.record.id}
    if generation.scripted:
        headers["x-ft-scripted"] = "true"
    return headers
