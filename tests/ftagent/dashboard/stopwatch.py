"""A proxy before an engine that holds a stopwatch to each answer and reads its usage, as the client at this end would."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOP = ("connection", "transfer-encoding", "content-length", "host", "accept-encoding")


@dataclass
class Seen:
    """One streamed answer. `first_s` from the request to the first piece of text, thought or tool call."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    first_s: float | None = None


@dataclass
class Stopwatch:
    port: int
    answers: list[Seen] = field(default_factory=list)  # in the order in which they ended

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def stopwatch(engine_port: int) -> Iterator[Stopwatch]:
    """Forwards everything to the engine, byte by byte."""
    watch = Stopwatch(0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", engine_port, timeout=600)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.end_headers()
            streamed = "event-stream" in (answer.getheader("content-type") or "") and self.command == "POST"
            seen = Seen()
            try:
                for line in answer if streamed else iter([answer.read()]):
                    self.wfile.write(line)
                    self.wfile.flush()
                    if streamed and line.startswith(b"data: {"):
                        _note(seen, json.loads(line[6:]), time.monotonic() - began)
            finally:
                connection.close()
            if streamed and seen.output:
                watch.answers.append(seen)

        do_GET = do_POST = do_DELETE = do_HEAD = _forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    watch.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield watch
    finally:
        server.shutdown()
        server.server_close()


def _note(seen: Seen, event: dict[str, Any], at_s: float) -> None:
    """Events of Messages and of chat completions."""
    if event.get("type") == "message_start":
        _usage(seen, event["message"].get("usage") or {})
    _usage(seen, event.get("usage") or {})
    pieces = [choice.get("delta") or {} for choice in event.get("choices") or ()]
    said = any(p.get("content") or p.get("reasoning_content") or p.get("tool_calls") for p in pieces)
    delta = event["delta"] if event.get("type") == "content_block_delta" else {}
    wrote = any(delta.get(name) for name in ("text", "thinking", "partial_json"))  # an empty one is a heartbeat
    begins_tool = event.get("type") == "content_block_start" and event["content_block"].get("type") == "tool_use"
    if seen.first_s is None and (said or begins_tool or wrote):
        seen.first_s = at_s


def _usage(seen: Seen, usage: dict[str, Any]) -> None:
    if usage.get("prompt_tokens"):
        seen.prompt = usage["prompt_tokens"]
        seen.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if usage.get("input_tokens") or usage.get("cache_read_input_tokens"):
        seen.cached = usage.get("cache_read_input_tokens") or 0
        seen.prompt = (usage.get("input_tokens") or 0) + seen.cached + (usage.get("cache_creation_input_tokens") or 0)
    seen.output = usage.get("completion_tokens") or usage.get("output_tokens") or seen.output
