"""A small HTTP server that says what it is told, for answers a healthy engine never gives; and the front before it, as a process of
its own or, quicker, inside this one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx

from engine.front import server as served
from engine.front.runtime import listen
from engine.settings import Settings, add_flags
from engine.upstream.model import Model, load
from engine.upstream.serve import front_of, tokens_of
from tests.serving import Engine, engine_server

Answer = tuple[int, Mapping[str, str], Any]  # status, headers, JSON; or a list of events for a stream


class Said:
    """`answers` maps "METHOD /path" to what is answered, `asked` holds the bodies that came."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""


@contextlib.contextmanager
def said(answers: dict[str, Any], port: int = 0) -> Iterator[Said]:
    state = Said(answers)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def _do(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            key = f"{self.command} {self.path}"
            state.asked.append((key, body))
            state.headers.append(dict(self.headers))
            answer = state.answers.get(key, (404, {}, {}))
            if callable(answer):
                answer = answer(body)
            if isinstance(answer, list):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for event in answer:
                    text = event if isinstance(event, str) else f"data: {json.dumps(event)}"
                    self.wfile.write(f"{text}\n\n".encode())
                return
            status, headers, data = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(data).encode())

        do_GET = do_POST = _do

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def models(owner: str, **more: Any) -> Callable[[Any], Answer]:
    return lambda _: (200, {}, {"data": [{"id": "m", "owned_by": owner, **more}]})


def upstream_flags(urls: Sequence[str]) -> list[str]:
    return [word for url in urls for word in ("--upstream", url)]


@contextlib.contextmanager
def front_process(urls: Sequence[str], model: str, models_dir: Path, token: str = "") -> Iterator[Engine]:
    """The product before `urls`."""
    environ = {"FT_UPSTREAM_TOKEN": token}
    with engine_server(model, models_dir, flags=upstream_flags(urls), environ=environ) as engine:
        yield engine


_load = cache(load)  # a tokenizer takes half a second


@contextlib.contextmanager
def front_before(
    urls: Sequence[str],
    model: str,
    models_dir: Path,
    token: str = "",
    flags: Sequence[str] = (),
    ready: bool = True,
) -> Iterator[Engine]:
    """The front before `urls`, with an event loop and a port of its own."""
    with tempfile.TemporaryDirectory(prefix="ft-") as folder:
        words = ["--model", model, "--models-dir", str(models_dir), "--runtime-dir", folder, *upstream_flags(urls)]
        parser = argparse.ArgumentParser()
        add_flags(parser)
        settings = Settings.resolve(vars(parser.parse_args([*words, *flags])), {})
        directory = served.model_directory(settings)
        known: Model = _load(directory)
        with listen(settings.host, 0) as sock:
            port = sock.getsockname()[1]
            front = front_of(settings, known, tokens_of(token, len(urls)), port)
            loops: list[asyncio.AbstractEventLoop] = []

            async def run() -> None:
                loops.append(asyncio.get_running_loop())
                await served._serve(front, sock)

            thread = threading.Thread(target=lambda: asyncio.run(run()))
            thread.start()
            url, admin = f"http://127.0.0.1:{port}", front.sessions.admin_token
            headers = {"authorization": f"Bearer {admin}"}
            try:
                with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
                    client.get("/health").raise_for_status()
                    engine = Engine(url, port, admin, cast(Any, None), Path(folder), Path(folder) / "log", client)
                    if ready:
                        engine.wait_ready(20)
                    yield engine
            finally:
                loops[0].call_soon_threadsafe(front.stop_asked.set)
                thread.join(30)
                assert not thread.is_alive()
