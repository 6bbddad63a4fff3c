"""Drives OpenCode's own server through several user turns in one process, as its screen would.

python serve_opencode.py FOLDER PORT TURNS -- COMMAND …     COMMAND starts `opencode serve --port PORT` in FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from typing import Any

STARTED_S, TURN_S, READING_S = 90, 120, 6
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> int:
    split = sys.argv.index("--")
    folder, port, turns = sys.argv[1:split]
    server = subprocess.Popen(sys.argv[split + 1 :], cwd=folder)
    try:
        session = _session(f"http://127.0.0.1:{port}")
        for turn in range(int(turns)):
            body = {"parts": [{"type": "text", "text": f"Read part {turn + 1}."}]}
            _post(f"http://127.0.0.1:{port}/session/{session}/message", body, TURN_S)
            time.sleep(READING_S)  # the prune is written in the meantime
    finally:
        server.terminate()
        server.wait(20)
    return 0


def _session(base: str) -> str:
    end = time.monotonic() + STARTED_S
    while True:
        try:
            return str(_post(f"{base}/session", {}, 20)["id"])
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def _post(url: str, body: dict[str, Any], timeout_s: float) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with OPENER.open(request, timeout=timeout_s) as answer:
        return json.load(answer)


sys.exit(main())
