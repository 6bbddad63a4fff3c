"""An engine that was started on the way ends itself when nobody uses it, and not before."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Any

from engine.front.idle import any_held
from tests.serving import Engine, engine_server

AFTER_S = 2.0


def tell(engine: Engine, after_s: Any, leases: Path | None = None) -> int:
    body = {"after_s": after_s, "leases": None if leases is None else str(leases)}
    return engine.client.post("/v1/engine/idle", json=body).status_code


def ended(engine: Engine, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while engine.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return engine.process.poll() is not None


def test_it_ends_when_idle_and_neither_while_leased_nor_while_used(models_dir: Path, tmp_path: Path) -> None:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "8k"]) as engine:
        assert engine.get("/ready")["stops_in_s"] is None, "one that a person started stays"
        for wrong in (0, -1, "soon", True):
            assert tell(engine, wrong) == 400
        lease = tmp_path / "s-aaaaaaaaaa.json"
        with lease.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert any_held(tmp_path)
            assert tell(engine, AFTER_S, tmp_path) == 200
            assert not ended(engine, 2 * AFTER_S)
        assert not any_held(tmp_path) and lease.exists(), "a file that nobody holds does not count"
        used = time.monotonic() + 2 * AFTER_S
        while time.monotonic() < used:
            answer = engine.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
            assert answer.status_code == 200, answer.text
            assert 0 < engine.get("/ready")["stops_in_s"] <= AFTER_S
            time.sleep(0.3)
        assert tell(engine, None) == 200
        assert not ended(engine, 2 * AFTER_S) and engine.get("/ready")["stops_in_s"] is None
        assert tell(engine, AFTER_S, tmp_path) == 200
        assert ended(engine, 4 * AFTER_S + 10)
        assert engine.process.returncode == 0
