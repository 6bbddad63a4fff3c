"""What a dashboard's keys do to requests of a real engine, and what it asks beside the rest: life and experts."""

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

SHORT: dict[str, Any] = {"messages": [{"role": "user", "content": "count"}], "max_tokens": 4}
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "count " * 300}], "max_tokens": 3000, "stream": True}
OFFLOAD = ["--device", "emulated", "--moe-backend", "offload", "--device-memory", "160m", "--kv", "16k"]


@pytest.fixture(scope="module")
def served(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=[*OFFLOAD, "--heartbeat-s", "0.3"]) as engine:
        yield engine


def running(engine: Engine) -> list[dict[str, Any]]:
    return engine.get("/v1/requests?running=1")["requests"]


def wait(done: Any, limit_s: float = 180.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_request_that_is_cancelled_tells_its_client_and_frees_the_worker(served: Engine) -> None:
    with served.client.stream("POST", "/v1/chat/completions", json=LONG) as stream:
        lines = stream.iter_lines()
        next(lines)
        (record,) = running(served)
        assert served.client.post(f"/v1/requests/{record['id']}/cancel").json() == {"cancelled": True}
        rest = "\n".join(lines)
    assert "cancelled" in rest and '"error"' in rest
    served.wait_idle()
    ended = next(r for r in served.get("/v1/requests")["requests"] if r["id"] == record["id"])
    assert ended["end"] == "cancelled" and ended["error"].startswith("FT-E0505")
    assert running(served) == []
    for what in ("cancel", "beat"):
        assert served.client.post(f"/v1/requests/{record['id']}/{what}").status_code == 404


def test_while_admission_is_paused_requests_wait_with_heartbeats(served: Engine) -> None:
    assert served.client.post("/v1/engine/pause", json={"on": True}).json() == {"paused": True}
    assert served.get("/v1/engine/life")["paused"] is True
    with served.client.stream("POST", "/v1/chat/completions", json={**SHORT, "stream": True}) as stream:
        lines = stream.iter_lines()
        (record,) = wait(lambda: [r for r in running(served) if r["heartbeats"] >= 2])
        assert record["cached_tokens"] is None and record["ttft_s"] is None
        assert 0 <= time.time() - record["last_beat"] < 2
        assert served.client.post(f"/v1/requests/{record['id']}/beat").json() == {"sent": True}
        assert served.client.post("/v1/engine/pause", json={"on": False}).json() == {"paused": False}
        assert "[DONE]" in "\n".join(lines)
    (ended,) = [r for r in served.get("/v1/requests")["requests"] if r["id"] == record["id"]]
    assert ended["end"] in ("stop", "length") and ended["heartbeats"] >= 3
    assert served.client.post("/v1/engine/pause", json={"on": 1}).status_code == 400


def test_a_heartbeat_that_is_asked_for_reaches_the_client_at_once(models_dir: Path) -> None:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k", "--heartbeat-s", "60"]) as engine:
        engine.client.post("/v1/engine/pause", json={"on": True})
        with engine.client.stream("POST", "/v1/messages", json={**SHORT, "stream": True}) as stream:
            lines = (line for line in stream.iter_lines() if line)
            (record,) = wait(lambda: running(engine))
            assert record["heartbeats"] == 0
            began = time.monotonic()
            engine.client.post(f"/v1/requests/{record['id']}/beat").raise_for_status()
            next(line for line in lines if "ping" in line)
            assert time.monotonic() - began < 50
            engine.client.post("/v1/engine/pause", json={"on": False})
            assert "message_stop" in "\n".join(lines)


def test_the_picture_of_experts_agrees_with_the_counters(served: Engine) -> None:
    served.client.post("/v1/chat/completions", json={**SHORT, "max_tokens": 40}).raise_for_status()
    stats, told = served.wait_idle()["engine"], served.get("/v1/engine/experts")
    assert told["schema"] == "ft.experts/1" and told["total"] == 64 and len(told["layers"]) == 8
    assert sum(layer["hits"] for layer in told["layers"]) == stats["experts"]["hits"]
    assert sum(layer["misses"] for layer in told["layers"]) == stats["experts"]["misses"]
    lies = sum(layer["in_slot"].count("1") for layer in told["layers"])
    assert lies == served.get("/v1/engine/memory")["experts"]["resident"] <= stats["experts"]["slots"]
    uses = [use for layer in told["layers"] for use in layer["use"]]
    assert len(uses) == 64 and max(uses) == 100 and min(uses) >= -1
    rates = [rate for _, rate in told["curve"]]
    assert told["curve"][0] == [0, 1.0] and told["curve"][-1][0] == 64 and rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.5
    assert told["optimum_slots"] is None or 0 < told["optimum_slots"] <= 64


def test_the_life_of_an_engine_tells_of_a_worker_that_was_killed(models_dir: Path) -> None:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
        told = engine.get("/v1/engine/life")
        assert told["crashes"] == [] and told["restarts_left"] == 3
        assert told["phases"][0]["state"] == "starting" and told["phases"][-1]["state"] == "ready"
        assert [p["at"] for p in told["phases"]] == sorted(p["at"] for p in told["phases"])
        os.kill(engine.worker_pid(), signal.SIGKILL)
        (crash,) = wait(lambda: engine.get("/v1/engine/life")["crashes"])
        assert crash["restart_in_s"] == 1.0 and crash["message"] and crash["code"].startswith("FT-E")
        engine.wait_ready()
        assert engine.get("/v1/engine/life")["restarts_left"] == 2


def test_nobody_without_the_admin_token_acts(served: Engine) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as stranger:
        for path in ("/v1/requests/req1/cancel", "/v1/requests/req1/beat", "/v1/engine/pause"):
            assert stranger.post(path, content=json.dumps({"on": True})).status_code == 401
        assert stranger.get("/v1/engine/experts").status_code == 401
