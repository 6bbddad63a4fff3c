"""The mini agent as a process, against a server that plays one scripted stream after another.

What the server cannot show, that a real engine's stream is understood, the sessions in tests/agents show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harnesses.mini.tools import ToolError, run_tool


class Server:
    """`replies`: what each request gets, a list of events or (status, body). `requests`: what was asked."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append((dict(self.headers.items()), body))
                reply = outer.replies.pop(0)
                if isinstance(reply, tuple):
                    self.send_response(reply[0])
                    self.end_headers()
                    self.wfile.write(reply[1].encode())
                    return
                self.send_response(200)
                self.end_headers()
                for event in reply:
                    self.wfile.write(f": alive\n\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def run(self, cwd: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        url = f"http://127.0.0.1:{self.http.server_port}/s/s-x"
        return subprocess.run(
            [sys.executable, "-E", "-P", "-m", "harnesses.mini", *args],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "FT_BASE_URL": url, "FT_TOKEN": "t", "FT_MODEL": "tiny", **env},
            capture_output=True,
            text=True,
            timeout=30,
        )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(name: str, *pieces: str, index: int = 0) -> list[dict[str, Any]]:
    first = {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [delta(tool_calls=[part]) for part in (first, *rest)]


def test_works_until_no_tool_is_called(server: Server, tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text("a - b\n")
    server.replies = [
        [
            delta(reasoning_content="look "),
            delta(reasoning_content="first"),
            *call("read", '{"path": ', '"calc.py"}'),
            delta("tool_calls"),
        ],
        [
            *call("bash", '{"command": "echo $((6*7))"}'),
            *call("edit", '{"path": "calc.py", "old": "a - b", "new": "a + b"}', index=1),
            delta("tool_calls"),
        ],
        [delta(content="Fixed "), delta(content="it."), delta("stop")],
    ]
    done = server.run(tmp_path, "fix calc.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "calc.py").read_text() == "a + b\n"
    assert done.stdout.splitlines() == ["[1] read calc.py", "[2] bash echo $((6*7))", "[2] edit calc.py", "Fixed it."]
    headers, body = server.requests[-1]
    assert headers["Authorization"] == "Bearer t" and body["model"] == "tiny" and body["stream"] is True
    messages = body["messages"]
    assert messages[2]["reasoning_content"] == "look first"
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "calc.py"}'
    assert [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"] == [
        ("c0", "a - b\n"), ("c0", "42\n"), ("c1", "edited calc.py"),
    ]  # fmt: skip
    assert server.requests[0][1]["messages"] == messages[:2], "the conversation is append-only"


def test_a_failing_tool_is_an_answer_not_the_end(server: Server, tmp_path: Path) -> None:
    server.replies = [
        [*call("read", '{"path": "absent"}'), *call("bash", "not json", index=1), delta("tool_calls")],
        [delta(content="gone"), delta("stop")],
    ]
    done = server.run(tmp_path, "x")
    assert done.returncode == 0
    results = [m["content"] for m in server.requests[1][1]["messages"] if m["role"] == "tool"]
    assert "No such file" in results[0] and results[1].startswith("error:")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((400, '{"error": {"message": "prompt is too long"}}'), "HTTP 400: prompt is too long"),
        ((502, "<html>"), "HTTP 502: <html>"),
        ([{"error": {"message": "the worker died"}}], "the worker died"),
        ([delta(content="cut")], "ended in the middle"),
        ([delta(content="long"), delta("length")], "ended by length"),
    ],
)
def test_a_failure_is_one_sentence_and_code_1(server: Server, tmp_path: Path, reply: Any, said: str) -> None:
    server.replies = [reply]
    done = server.run(tmp_path, "x")
    assert done.returncode == 1
    assert said in done.stderr and "Traceback" not in done.stderr


def test_steps_are_limited(server: Server, tmp_path: Path) -> None:
    server.replies = [[*call("bash", '{"command": "true"}'), delta("tool_calls")]] * 2
    done = server.run(tmp_path, "x", "--max-steps", "2")
    assert done.returncode == 1 and "--max-steps" in done.stderr and len(server.requests) == 2


def test_the_token_is_for_this_machine_only(server: Server, tmp_path: Path) -> None:
    for url in ("http://192.0.2.1/s/x", "https://127.0.0.1/", ""):
        done = server.run(tmp_path, "x", FT_BASE_URL=url)
        assert done.returncode == 2 and "FT_BASE_URL" in done.stderr


def test_modules_of_the_project_do_not_stand_in_for_ours(server: Server, tmp_path: Path) -> None:
    for name in ("harnesses", "engine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    server.replies = [
        [*call("bash", '{"command": "echo $PYTHONPATH"}'), delta("tool_calls")],
        [delta(content="ok"), delta("stop")],
    ]
    done = server.run(tmp_path, "x", PYTHONPATH=".")
    assert done.returncode == 0, done.stderr
    assert server.requests[1][1]["messages"][-1]["content"] == ".\n", "its tools still get the user's PYTHONPATH"


def test_edits_must_be_unambiguous(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("aa")
    for old in ("a", "b"):
        with pytest.raises(ToolError, match=r"occurs [20] times"):
            run_tool("edit", {"path": "f", "old": old, "new": "c"}, tmp_path)
    with pytest.raises(ToolError, match="needs new"):
        run_tool("edit", {"path": "f", "old": "aa"}, tmp_path)
    with pytest.raises(ToolError, match="no tool rm"):
        run_tool("rm", {}, tmp_path)
    assert (tmp_path / "f").read_text() == "aa"


def test_long_output_keeps_both_ends(tmp_path: Path) -> None:
    result = run_tool("bash", {"command": "echo first; seq 20000; echo last; exit 3"}, tmp_path)
    assert result.startswith("first\n") and result.endswith("last\n\n[exit code 3]") and "left out" in result
