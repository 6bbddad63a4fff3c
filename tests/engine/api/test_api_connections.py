"""Clients that are no good at HTTP, or too many: each gets what it deserves, nothing is kept of it, and the others are served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from engine.api import fields
from engine.api.errors import TooSlow
from engine.front import patience
from tests.engine.front.fakes import Control, fake_engine
from tests.serving import Engine

MANY = 1000
LONG = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3000, "stream": True}


@pytest.fixture(scope="module")
def victim(models_dir: Path) -> Iterator[tuple[Engine, Control]]:
    with fake_engine(models_dir, ["--heartbeat-s", "0.3"], tokens_per_s=20) as pair:
        yield pair


def wire(engine: Engine, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", engine.port), timeout=120)
    if data:
        made.sendall(data)
    return made


def head(engine: Engine, line: str, *more: str, host: str = "localhost", token: str | None = None) -> bytes:
    token = engine.admin_token if token is None else token
    return "\r\n".join([line, f"Host: {host}", f"Authorization: Bearer {token}", *more, "", ""]).encode()


def everything(made: socket.socket) -> bytes:
    told = b""
    with contextlib.suppress(ConnectionError):
        while part := made.recv(65536):
            told += part
    return told


def files(engine: Engine) -> int:
    return len(os.listdir(f"/proc/{engine.process.pid}/fd"))


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_thousand_connections_that_say_half_of_something_stop_nobody(victim: tuple[Engine, Control]) -> None:
    engine, _ = victim
    before = files(engine)
    begins = (b"", b"GET /hea", b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    made = [wire(engine, begins[i % 3]) for i in range(MANY)]
    until(lambda: files(engine) >= before + MANY, "all are connected")
    answer = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False, "max_tokens": 3})
    assert answer.status_code == 200
    for one in made:
        one.close()
    until(lambda: files(engine) <= before + 2, "all are let go")
    assert "Traceback" not in engine.log.read_text()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/completions"])
def test_clients_that_hang_up_anywhere_leave_nothing(victim: tuple[Engine, Control], path: str) -> None:
    """Within the head, within the body, before the first byte, within the stream, and by closing one direction only."""
    engine, _ = victim
    before = files(engine)
    body = json.dumps({**LONG, "input": "hi", "prompt": "hi", "max_output_tokens": 3000}).encode()
    whole = head(engine, f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}") + body
    for end in (20, len(whole) - 30, len(whole)):
        wire(engine, whole[:end]).close()
    half = wire(engine, whole)
    half.shutdown(socket.SHUT_WR)
    everything(half)
    half.close()
    streams = [wire(engine, whole) for _ in range(3)]
    for stream in streams:
        assert stream.recv(200).startswith(b"HTTP/1.1 200")
        stream.close()
    assert engine.wait_idle()["at_worker"] == 0
    until(lambda: files(engine) <= before + 2, "all are let go")
    assert "Traceback" not in engine.log.read_text()


def test_listeners_that_leave_are_forgotten(victim: tuple[Engine, Control]) -> None:
    engine, _ = victim
    before = files(engine)
    listeners = [wire(engine, head(engine, "GET /v1/engine/events HTTP/1.1")) for _ in range(20)]
    for listener in listeners:
        assert b"200 OK" in listener.recv(100)
        listener.close()
    until(lambda: files(engine) <= before + 2, "all are let go")


def test_requests_in_one_go_are_answered_in_their_order(victim: tuple[Engine, Control]) -> None:
    engine, _ = victim
    asked = b"".join(head(engine, f"GET /v1/requests?limit={i} HTTP/1.1") for i in range(9))
    with wire(engine, asked + head(engine, "GET /nowhere HTTP/1.1", "Connection: close")) as made:
        told = everything(made)
    assert told.count(b"HTTP/1.1 200 OK") == 9 and told.count(b"HTTP/1.1 404") == 1
    assert told.rindex(b"HTTP/1.1 200") < told.index(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "line",
    [
        b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET http://127.0.0.1@example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", b"\r\n" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["tls", "version", "far", "nul", "hosts", "lengths", "negative", "chunk", "long", "empty", "http2"],
)  # fmt: skip
def test_what_is_no_http_is_refused(victim: tuple[Engine, Control], line: bytes) -> None:
    engine, _ = victim
    with wire(engine) as made:
        with contextlib.suppress(ConnectionError):
            made.sendall(line)
            made.shutdown(socket.SHUT_WR)
        told = everything(made)
    assert told == b"" or told.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 401")), told[:200]
    assert engine.client.get("/health").status_code == 200
    assert "Traceback" not in engine.log.read_text()


def test_who_may_come_in(victim: tuple[Engine, Control]) -> None:
    engine, _ = victim
    one, two = engine.session(), engine.session()

    def ask(path: str, method: str = "GET", token: str = "", **heads: str) -> httpx.Response:
        given = {"authorization": f"Bearer {token}"} if token else {}
        return client.request(method, engine.url + path, headers={**given, **heads})

    client = httpx.Client(trust_env=False, verify=False, timeout=300)

    for path in ("/v1/stats", "/v1/sessions", "/metrics", f"/s/{one['id']}/v1/models", "/v1/engine/events"):
        assert ask(path).status_code == 401
        assert ask(path, token="wrong").status_code == 401
        assert ask(path, token=engine.admin_token, host="evil.example").status_code == 403
        assert ask(path, token=two["token"]).status_code == 401
    assert ask("/v1/engine/stop", "POST", one["token"]).status_code == 401
    for path in (
        f"/s/{one['id']}/../../v1/stats",
        f"/s/{one['id']}/%2e%2e/%2e%2e/v1/stats",
        f"/s/{one['id']}//v1/stats",
    ):
        assert ask(path, token=one["token"]).status_code in (401, 404)
    for id_ in ("..%2f..%2fetc%2fpasswd", "%00", "s-" + "a" * 9000, "%F0%9F%98%80", "s-aaaaaaaaaa", "..;"):
        for verb, tail in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/forget"),
            ("POST", "/prefetch"),
            ("GET", "/turns"),
            ("GET", "/draft"),
        ):
            answer = ask(f"/v1/sessions/{id_}{tail}", verb, engine.admin_token)
            assert answer.status_code in (404, 405) or (tail == "/forget" and id_ == "s-aaaaaaaaaa"), (id_, verb, tail)
    # A page of somebody else may have a browser send what it likes: it has no token, and reads nothing.
    page = ask("/health", origin="https://evil.example")
    assert not any(name.startswith("access-control") for name in page.headers)
    answer = ask("/v1/sessions", "POST", origin="https://evil.example", **{"content-type": "text/plain"})
    assert answer.status_code == 401


def test_a_head_that_does_not_end_is_cut_off_and_a_connection_that_waits_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "HEAD_S", 1.0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.5)  # longer than a head may take
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def play() -> None:
        from uvicorn import Config
        from uvicorn.server import ServerState

        config, state = Config(app, lifespan="off", ws="none"), ServerState()
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: patience.PatientProtocol(config, state, {}), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        waiting = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            waiting[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"204" in await waiting[0].readuntil(b"\r\n\r\n")
        silent = await asyncio.open_connection("127.0.0.1", port)
        slow = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for byte in b"GET / HTTP/1.1\r\nX-Header: one byte at a time, for ever and ever" * 100:
                slow[1].write(bytes([byte]))
                await slow[1].drain()
                await asyncio.sleep(0.05)
                if slow[0].at_eof():
                    break
            assert slow[0].at_eof(), "it was never cut off"
        assert await silent[0].read() == b""
        waiting[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"204" in await waiting[0].readuntil(b"\r\n\r\n")
        for _, writer in (waiting, silent, slow):
            writer.close()
        server.close()

    asyncio.run(play())


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "BODY_S", 0.1)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": [], "path": "/", "query_string": b""}
    with pytest.raises(TooSlow):
        asyncio.run(fields.read_json(Request(scope, receive)))
