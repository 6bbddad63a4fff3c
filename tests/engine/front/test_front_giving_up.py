"""A client with a short time limit sends a long prompt again and again: each time the engine goes on from where it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.serving import Engine, engine_server

CHUNK = 64
PATIENCE = 4 * CHUNK  # tokens that are computed before the client hangs up


def computed(engine: Engine) -> int:
    """Tokens of the only request that the worker has computed or found; 0 while it has none."""
    worker = engine.get("/v1/stats")["engine"]
    requests = worker["requests"] if worker else []
    return int(requests[0]["computed"]) if requests else 0


def hang_up(engine: Engine, session: dict[str, Any], body: dict[str, Any], had: int) -> int | None:
    """Send, and go away once there are `PATIENCE` more tokens than it `had`. Returns how many there were; None when the answer
    came first."""
    path, headers = f"/s/{session['id']}/v1/chat/completions", {"authorization": f"Bearer {session['token']}"}
    with engine.client.stream("POST", path, json=body, headers=headers) as answer:
        assert answer.status_code == 200
        deadline = time.monotonic() + 120
        while (now := computed(engine)) < had + PATIENCE:
            assert time.monotonic() < deadline, "no progress"
            if engine.get("/v1/stats")["running"] == 0:
                return None
            time.sleep(0.02)
    return now


def test_a_client_that_gives_up_again_and_again_gets_its_answer(models_dir: Path) -> None:
    flags = ["--kv", "16k", "--throttle-tokens-per-s", "500", "--chunk-tokens", str(CHUNK), "--anticipate", "off"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        session = engine.session()
        messages = [{"role": "user", "content": "one of many words " * 400}]
        body = {"model": "m", "max_tokens": 4, "messages": messages, "stream": True}
        had, attempts = 0, 0
        while (now := hang_up(engine, session, body, had)) is not None:
            attempts += 1
            engine.wait_idle()
            last = engine.get(f"/v1/sessions/{session['id']}/turns")["turns"][-1]
            assert last["cached_tokens"] >= had - CHUNK and last["replayed_tokens"] <= CHUNK
            had = now
        last = engine.get(f"/v1/sessions/{session['id']}/turns")["turns"][-1]
        assert attempts >= 3 and last["output_tokens"] and last["replayed_tokens"] <= CHUNK
        assert last["cached_tokens"] >= had - CHUNK > 3 * PATIENCE - CHUNK
