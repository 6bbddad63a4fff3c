"""A real engine for tests: `with engine_server("tiny-hybrid", models_dir) as engine:` and talk to `engine.url`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

SERVE = (sys.executable, "-P", "-m", "engine", "serve")


@dataclass
class Engine:
    """A running engine. `log` holds what front and worker wrote; `client` carries the admin token."""

    url: str
    port: int
    admin_token: str
    process: subprocess.Popen[bytes]
    runtime_dir: Path
    log: Path
    client: httpx.Client

    def get(self, path: str) -> Any:
        """The JSON of a control route; fails on an error status."""
        return self.client.get(path).raise_for_status().json()

    def session(self, **fields: Any) -> dict[str, Any]:
        """POST /v1/sessions: {id, token, base_urls, window, max_output}."""
        answer = self.client.post("/v1/sessions", json={"harness": "test", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def worker_pid(self) -> int:
        return int(self.client.get("/ready").json()["worker_pid"])

    def wait_ready(self, timeout_s: float = 300.0) -> dict[str, Any]:
        """The body of /ready once it is 200."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self.client.get("/ready")
            if answer.status_code == 200:
                return answer.json()
            assert answer.json()["state"] != "crashed", answer.text
            assert time.monotonic() < deadline, f"not ready after {timeout_s} s: {answer.text}\n{self.log.read_text()}"
            time.sleep(0.05)

    def wait_idle(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """/v1/stats once no request is running, neither here nor at the worker."""
        deadline = time.monotonic() + timeout_s
        while True:
            stats = self.get("/v1/stats")
            if stats["running"] == 0 and stats["at_worker"] == 0:
                return stats
            assert time.monotonic() < deadline, f"still running after {timeout_s} s: {stats}"
            time.sleep(0.05)


@contextlib.contextmanager
def engine_server(
    model: str,
    models_dir: Path,
    *,
    flags: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = SERVE,
    ready: bool = True,
) -> Iterator[Engine]:
    """Start an engine on a free port with folders of its own; stop it at the end, whatever happened.

    `flags` are further options of `engine serve`, `environ` is added to its environment. With `ready` the worker has
    served a first forward when the block begins.
    """
    with tempfile.TemporaryDirectory(prefix="ft-") as folder:
        runtime_dir, log = Path(folder) / "run", Path(folder) / "engine.log"
        port = free_port()
        arguments = ["--model", model, "--models-dir", str(models_dir), "--runtime-dir", str(runtime_dir)]
        arguments += ["--port", str(port), "--log", str(log), *flags]
        output = (Path(folder) / "output").open("wb")
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
        )
        try:
            engine = _connect(process, runtime_dir, log, Path(folder) / "output")
            with contextlib.closing(engine.client):
                if ready:
                    engine.wait_ready()
                yield engine
        finally:
            stop(process)
            output.close()


def _connect(process: subprocess.Popen[bytes], runtime_dir: Path, log: Path, output: Path) -> Engine:
    deadline = time.monotonic() + 300
    record = runtime_dir / "engine.json"
    while True:
        assert process.poll() is None, f"serve ended with {process.returncode}: {output.read_text()}"
        if record.exists():
            facts = json.loads(record.read_text())
            url = f"http://127.0.0.1:{facts['port']}"
            client = httpx.Client(
                base_url=url, headers={"authorization": f"Bearer {facts['admin_token']}"}, timeout=300, trust_env=False
            )
            with contextlib.suppress(httpx.TransportError):
                if client.get("/health").json()["nonce"] == facts["nonce"]:
                    return Engine(url, facts["port"], facts["admin_token"], process, runtime_dir, log, client)
        assert time.monotonic() < deadline, f"no answer on /health: {output.read_text()}"
        time.sleep(0.02)


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a served engine: SIGTERM twice, which skips the drain, then SIGKILL. Returns the exit code."""
    for number, wait_s in ((signal.SIGTERM, 1.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            break
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    return process.wait(120)
