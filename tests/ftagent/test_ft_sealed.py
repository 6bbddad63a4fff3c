"""A sealed launch: the engine is reached, nothing else is, and every attempt is told by name."""

from __future__ import annotations

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ftagent.errors import Refused
from ftagent.launch import sealed
from ftagent.launch.egress import UNKNOWN, Attempt, wanted_of
from ftagent.launch.run import run_agent
from ftagent.launch.seal_variables import proxy_port, proxy_variables

PROBE = """
import socket, sys, urllib.request as u
print(u.urlopen(sys.argv[1], timeout=5).read().decode())
for url in ("https://api.example.com/a", "http://b.example.com:81/"):
    try: u.urlopen(url, timeout=5)
    except OSError: pass
for place in (("192.0.2.1", 80), ("c.example.com", 80)):
    try: socket.create_connection(place, timeout=2)
    except OSError: pass
"""


class Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the engine")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("mode", [sealed.NAMESPACE, sealed.PROXY])
def test_only_the_engine_is_reached(mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if mode == sealed.NAMESPACE and not sealed.namespaces_permitted():
        pytest.skip("this system permits no network namespace")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    env = {"PATH": "/usr/bin:/bin", **proxy_variables(str(tmp_path))}
    try:
        with sealed.seal(url, str(tmp_path), tmp_path, mode) as seal:
            code = run_agent([sys.executable, "-c", PROBE, url], env, tmp_path, seal.enter)
            report = seal.report()
    finally:
        server.shutdown()
    assert code == 0
    assert capfd.readouterr().out == "from the engine\n"
    assert seal.mode == mode
    assert Attempt("api.example.com", 443, 1) in report.refused
    assert Attempt("b.example.com", 81, 1) in report.refused
    named = {attempt.host for attempt in report.refused}
    assert report.served == (1 if mode == sealed.NAMESPACE else None)
    assert ({"c.example.com", UNKNOWN} <= named) == (mode == sealed.NAMESPACE), "only a namespace sees everybody"


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with sealed.seal("http://127.0.0.1:1", "s-left", tmp_path, sealed.PROXY), pytest.raises(OSError):
        socket.create_server(("127.0.0.1", proxy_port("s-left"))).close()
    socket.create_server(("127.0.0.1", proxy_port("s-left"))).close()
    assert not list(tmp_path.iterdir())


def test_an_engine_elsewhere_cannot_be_sealed(tmp_path: Path) -> None:
    with pytest.raises(Refused), sealed.seal("http://other.example.com:1919", "s-x", tmp_path):
        pass


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n", ("api.example.com", 443)),
        (b"GET http://a.example.com/x HTTP/1.1\r\n\r\n", ("a.example.com", 80)),
        (b"POST https://u:p@a.example.com:8443/x HTTP/1.1\r\n\r\n", ("a.example.com", 8443)),
        (b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n", ("2001:db8::1", 443)),
        (b"", None),
        (b"\x16\x03\x01", None),
    ],
)
def test_what_a_proxy_is_asked_for(head: bytes, wanted: tuple[str, int] | None) -> None:
    assert wanted_of(head) == wanted


@pytest.mark.usefixtures("pulled")
def test_a_sealed_launch_reports_what_it_refused(sandbox) -> None:
    sandbox.agent(
        "python3 -c \"import urllib.request as u; u.urlopen('https://api.example.com/')\" 2>/dev/null; exit 3"
    )
    done = sandbox.run("launch", "pi", "--sealed", fake=True)
    assert done.returncode == 3, done.stderr
    assert "served here, 1 refused at egress: api.example.com:443 x1" in done.stderr
    (file,) = (sandbox.ft_home / "state" / "sessions").glob("*/session.json")
    assert json.loads(file.read_text())["egress"]["refused"] == [{"host": "api.example.com", "port": 443, "count": 1}]


def test_the_plan_of_a_sealed_launch_says_so(sandbox) -> None:
    done = sandbox.run("launch", "claude", "--sealed", "--dry-run", "--json", env={"HTTPS_PROXY": "http://p.example:1"})
    plan = json.loads(done.stdout)
    assert plan["sealed"] is True
    proxies = {v["name"]: v["value"] for v in plan["env"]["set"] if v["name"].lower().endswith("_proxy")}
    assert set(proxies) == {*proxy_variables("s-0000000000")} and "p.example" not in done.stdout
    assert sandbox.run("launch", "pi", "--sealed", "--exec").returncode == 2
