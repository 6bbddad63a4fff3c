"""`ft doctor --agent NAME --probe`: the installed agent meets a recorder, and its requests are compared with its card.

A home, a project and a state folder of their own; no network but the recorder's where the system permits that.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ftagent.launch import plan as planning
from ftagent.launch.apply import apply
from ftagent.launch.find import in_range
from ftagent.launch.sealed import seal
from ftagent.paths import find_paths
from harnesses.contract import Harness

REMOVALS = 10
DEFAULT_S = 5.0
WINDOW = 131072
MODEL = "probe-model"


@dataclass(frozen=True, slots=True)
class Finding:
    """`holds` None: could not be seen."""

    name: str
    holds: bool | None
    text: str


def probe(harness: Harness, executable: Path, version: str | None, env: Mapping[str, str]) -> list[Finding]:
    """Runs the agent for as long as its card says, or until it has asked. Raises FtError when it cannot be started."""
    card = harness.declaration["card"]
    folder = Path(tempfile.mkdtemp(prefix="ft-probe-"))
    try:
        requests, refused = _record(harness, executable, version, env, folder, float(card.get("seconds", DEFAULT_S)))
    finally:
        _remove(folder)
    return [*_version(harness, version), *_compare(card, requests), *_named(card, executable), *refused]


def _remove(folder: Path) -> None:
    """Again where it fills up meanwhile: what an agent had started in a session of its own ends a little later."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.5)


def _record(
    harness: Harness, executable: Path, version: str | None, env: Mapping[str, str], folder: Path, limit_s: float
) -> tuple[list[dict[str, Any]], list[Finding]]:
    home, project = folder / "home", folder / "project"
    home.mkdir()
    project.mkdir()
    requests: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(requests))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    own = {"PATH": env.get("PATH", os.defpath), "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8"}
    paths = find_paths({"HOME": str(home), "FT_HOME": str(folder / "ft")})
    session = planning.SessionState(
        "probe", project, project, None, paths.sessions / "s-probe00000", "s-probe00000", "ft_sess_p"
    )
    engine = planning.EngineState(url, True, [], MODEL, WINDOW, False)
    request = planning.LaunchRequest(
        harness=harness, args=list(harness.declaration["card"]["probe"]), home=home, env=own, executable=executable,
        version=version, sealed=True, force=True,
    )  # fmt: skip
    try:
        plan = planning.build(request, session, engine, {})
        apply(plan, paths)
        with seal(url, session.id, session.state_dir) as sealing:
            child = subprocess.Popen(
                plan.argv, env=plan.environment, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=sealing.enter,
            )  # fmt: skip
            _wait(child, requests, limit_s)
            report = sealing.report()
        names = ", ".join(attempt.host for attempt in report.refused)
        return requests, [Finding("egress", not report.refused, names or f"nothing tried to leave ({sealing.mode})")]
    finally:
        server.shutdown()
        server.server_close()


def _wait(child: subprocess.Popen[bytes], requests: list[dict[str, Any]], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end and child.poll() is None and not any(r["method"] == "POST" for r in requests):
        time.sleep(0.05)
    time.sleep(0.2)
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _handler(requests: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Recorder(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.append({"method": self.command, "path": self.path, "headers": headers, "body": body})
            text = b'{"error": {"type": "invalid_request_error", "message": "this was a probe"}}'
            self.send_response(200 if self.command in ("GET", "HEAD") else 400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_HEAD = _answer

        def log_message(self, *_: object) -> None:
            pass

    return Recorder


def _version(harness: Harness, version: str | None) -> Iterator[Finding]:
    known = harness.declaration.get("versions")
    if version is None or not isinstance(known, str):
        yield Finding("version", None, "not known")
    else:
        yield Finding("version", in_range(version, known), f"{version}; {known} has been checked")


def _compare(card: Mapping[str, Any], requests: list[dict[str, Any]]) -> Iterator[Finding]:
    posts = [request for request in requests if request["method"] == "POST" and "count_tokens" not in request["path"]]
    if not posts:
        yield Finding("request", None, "the agent sent none in time")
        return
    first = max(posts, key=lambda request: len(request["body"]))
    path = first["path"].partition("?")[0]
    yield Finding("endpoint", path.endswith(card["path"]), path)
    for name in card["headers"]:
        yield Finding(f"header {name}", name in first["headers"], "sent" if name in first["headers"] else "missing")
    sent = " ".join(first["headers"].values())
    yield Finding(
        "key", "ft_sess_p" in sent, "the key of the launch" if "ft_sess_p" in sent else "another key, or none"
    )
    try:
        body = json.loads(first["body"])
    except ValueError:
        yield Finding("body", None, f"no plain JSON ({first['headers'].get('content-encoding', 'not compressed')})")
        return
    yield Finding("model", body.get("model") == MODEL, str(body.get("model")))
    if card["output_key"]:
        cap = body.get(card["output_key"])
        yield Finding("output cap", cap == planning.default_output_tokens(WINDOW), f"{card['output_key']} = {cap}")
    if card["marks"]:
        yield Finding("marks", card["marks"].encode() in first["body"], card["marks"])
    low, high = card["first_bytes"]
    size = len(first["body"])
    yield Finding("first request", low <= size <= high, f"{size:,} bytes, {low:,} to {high:,} expected")


def _named(card: Mapping[str, Any], executable: Path) -> Iterator[Finding]:
    """Whether the program holds the words; not said of a script, whose words are in other files."""
    with executable.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text[:2] == b"#!":
            return
        for word in card["named"]:
            found = text.find(word.encode()) >= 0
            yield Finding(f"key {word}", found, "known to the program" if found else "not found in the program")
