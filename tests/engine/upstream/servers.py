"""A small HTTP server that says what it is told, for answers a healthy engine never gives; and the front before it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def front_before(
    urls: Sequence[str],
    model: str,
    models_dir: Path,
    token: str = "",
    flags: Sequence[str] = (),
    ready: bool = True,
) -> Iterator[Engine]:
    """The product before `urls`."""
    options = [word for url in urls for word in ("--upstream", url)]
    environ = {"FT_UPSTREAM_TOKEN": token}
    with engine_server(model, models_dir, flags=[*options, *flags], environ=environ, ready=ready) as engine:
        yield engine
