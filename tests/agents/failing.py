"""Stands before a running engine and answers its first requests for tokens with an error; everything else is passed on.

    python failing.py PLAN.json

PLAN: {"argv", "failures": how many, "status": of the error, "model"}: `argv` is an `ft launch …`, which is given this place for its engine.
With "port" in the place of "model" it is any program, and nothing stands behind: every request for tokens fails there.
Prints how many requests for tokens came, after the agent's own output.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ASKING = ("/chat/completions", "/responses", "/messages")


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    asked: list[str] = []
    if "port" in plan:
        _serve(plan["port"], _handler(0, plan, asked))
        code = subprocess.run(plan["argv"], stdin=subprocess.DEVNULL).returncode
    else:
        code = _launch(plan, asked)
    print(f"asked {len(asked)} times")
    return code


def _launch(plan: dict[str, Any], asked: list[str]) -> int:
    ft, verb, *rest = plan["argv"]
    started = subprocess.run([ft, "engine", "start", "-m", plan["model"]], capture_output=True, text=True)
    if started.returncode != 0:
        print(started.stderr, file=sys.stderr)
        return 125
    engine = json.loads((Path(os.environ["FT_HOME"]) / "runtime" / "engine.json").read_text())
    port = _serve(0, _handler(engine["port"], plan, asked))
    env = {**os.environ, "FT_ENGINE_TOKEN": engine["admin_token"]}
    place = ["--engine", f"http://127.0.0.1:{port}"]
    return subprocess.run([ft, verb, *place, *rest], env=env, stdin=subprocess.DEVNULL).returncode


def _serve(port: int, handler: type[BaseHTTPRequestHandler]) -> int:
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def _handler(port: int, plan: dict[str, Any], asked: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.command == "POST" and self.path.partition("?")[0].endswith(ASKING):
                asked.append(self.path)
                if len(asked) <= plan["failures"]:
                    self._answer(plan["status"], b'{"error": {"type": "server_error", "message": "out of order"}}')
                    return
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("connection", "close")
            self.end_headers()
            while data := answer.read1(65536):
                self.wfile.write(data)
                self.wfile.flush()
            self.close_connection = True

        def _answer(self, status: int, text: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            if status in (429, 503):  # as our engine does
                self.send_header("retry-after", "1")
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_HEAD = _pass_on

    return Handler


sys.exit(main())
