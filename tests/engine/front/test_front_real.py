"""The same faults with the real worker: killed, stopped and deserted in mid-stream."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import Engine, engine_server

LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 15000, "stream": True}
SHORT = {**LONG, "max_tokens": 4, "stream": False}
MOST_KIB_EACH = 20  # of memory that a request which was hung up may leave: a record in a ring that is not full yet


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
        yield engine


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "is stopped")])
def test_a_lost_worker_is_an_error_and_the_next_request_is_served(
    engine: Engine, number: signal.Signals, cause: str
) -> None:
    restarts = engine.get("/ready")["restarts"]
    before = engine.client.post("/v1/chat/completions", json=SHORT).json()["choices"]
    with engine.client.stream("POST", "/v1/messages", json=LONG) as answer:
        events = (json.loads(x[6:]) for x in answer.iter_lines() if x.startswith("data: "))
        assert next(e for e in events if e["type"] == "content_block_delta")
        began = time.monotonic()
        os.kill(engine.worker_pid(), number)
        last = list(events)[-1]
    assert time.monotonic() - began < 45, "as long as a stall"
    assert last["type"] == "error" and cause in last["error"]["message"]
    after = engine.client.post("/v1/chat/completions", json=SHORT)
    assert after.status_code == 200 and after.json()["choices"] == before
    assert engine.get("/ready")["restarts"] == restarts + 1


def test_case_29_two_hundred_hang_ups_in_mid_stream(engine: Engine) -> None:
    """Nothing goes on, the next request is served, and neither process has grown by what was hung up."""
    hang_up(engine, 200)  # from now on buffers and books are as large as they get
    pids = {"front": engine.process.pid, "worker": engine.worker_pid()}
    before = {name: resident_mib(pid) for name, pid in pids.items()}
    hang_up(engine, 200)
    grown = {name: resident_mib(pid) - before[name] for name, pid in pids.items()}
    assert all(mib < 200 * MOST_KIB_EACH / 1024 for mib in grown.values()), (before, grown)
    assert engine.client.post("/v1/chat/completions", json=SHORT).status_code == 200


def hang_up(engine: Engine, times: int) -> None:
    headers = {"authorization": f"Bearer {engine.admin_token}"}
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=engine.url, headers=headers, limits=limits, trust_env=False, timeout=60) as client:
        streams = []
        for i in range(times):
            path = ("/v1/messages", "/v1/chat/completions")[i % 2]
            streams.append(client.send(client.build_request("POST", path, json=LONG), stream=True))
            assert streams[-1].status_code == 200
        assert engine.get("/v1/stats")["running"] == times
        for stream in streams:
            stream.close()
    stats = engine.wait_idle()
    assert stats["engine"]["running"] == 0 and stats["engine"]["waiting"] == 0


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) / 1024


def test_a_resent_prompt_finds_what_was_computed(engine: Engine) -> None:
    body = {**LONG, "messages": [{"role": "user", "content": "once more " * 400}]}
    with engine.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(x for x in answer.iter_lines() if "content" in x and '"content":""' not in x)
    again = engine.client.post("/v1/chat/completions", json={**body, "max_tokens": 2, "stream": False}).json()
    usage = again["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] // 2
    assert engine.get("/v1/requests?limit=1")["requests"][0]["resent"] is True
