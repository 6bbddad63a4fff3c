"""What is done to an engine while it loads: hang-ups, a stop, changes of its memory, a death of its worker."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.front.fakes import fake_engine
from tests.serving import Engine

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
LONG = {**ASKED, "max_tokens": 30000, "stream": True}


def loading(engine: Engine) -> None:
    while engine.client.get("/ready").json()["state"] != "loading":
        time.sleep(0.02)


def later(engine: Engine, path: str, body: dict[str, Any]) -> tuple[threading.Thread, list[httpx.Response]]:
    """The request is at the engine when this returns; its answer is there when the thread has ended."""
    answers: list[httpx.Response] = []
    before = len(engine.get("/v1/requests")["requests"]) if "engine" not in path else None
    asking = threading.Thread(target=lambda: answers.append(engine.client.post(path, json=body)))
    asking.start()
    while before is not None and len(engine.get("/v1/requests")["requests"]) == before:
        time.sleep(0.02)
    return asking, answers


def test_who_hangs_up_while_it_loads_is_not_computed(models_dir: Path) -> None:
    with fake_engine(models_dir, ["--heartbeat-s", "0.2"], ready=False, mode="wait") as (engine, control):
        loading(engine)
        for _ in range(5):
            with engine.client.stream("POST", "/v1/chat/completions", json=LONG) as answer:
                next(answer.iter_lines())
        assert engine.wait_idle()["at_worker"] == 0
        control.go()
        engine.wait_ready()
        assert engine.client.post("/v1/chat/completions", json=ASKED).status_code == 200
        assert engine.get("/v1/stats")["engine"]["last"][0]["max_tokens"] == 3
        assert [r["end"] for r in engine.get("/v1/requests")["requests"]] == ["client_gone"] * 5 + ["length"]


@pytest.mark.parametrize(("path", "status"), [("/v1/messages", 529), ("/v1/chat/completions", 503)])
def test_a_stop_while_it_loads_does_not_wait_for_requests_that_wait(models_dir: Path, path: str, status: int) -> None:
    with fake_engine(models_dir, ready=False, mode="wait") as (engine, _):
        loading(engine)
        asking, answers = later(engine, path, ASKED)
        assert engine.client.post("/v1/engine/stop").status_code == 202
        asking.join(180)
        assert answers[0].status_code == status and "stopping" in answers[0].json()["error"]["message"]
        assert engine.process.wait(180) == 0
        assert not (engine.runtime_dir / "engine.json").exists() and not (engine.runtime_dir / "worker.json").exists()


def test_a_change_of_memory_while_it_loads_is_done_when_it_serves(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="wait") as (engine, control):
        loading(engine)
        asking, answers = later(engine, "/v1/engine/memory/apply", {"kv_tokens": 4096})
        time.sleep(0.2)
        control.go()
        asking.join(180)
        assert answers[0].status_code == 200 and answers[0].json()["asked"]["kv_tokens"] == 4096


def test_a_change_of_memory_that_waits_for_an_engine_that_is_stopped_is_refused(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="wait") as (engine, _):
        loading(engine)
        asking, answers = later(engine, "/v1/engine/memory/apply", {"kv_tokens": 4096})
        time.sleep(0.2)
        assert engine.client.post("/v1/engine/stop").status_code == 202
        asking.join(180)
        assert answers[0].status_code == 503
        assert engine.process.wait(180) == 0


def test_a_worker_that_dies_while_it_serves_and_loads_is_followed_by_one_that_loads_again(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="early") as (engine, control):
        loading(engine)
        control.set(mode="die")
        with engine.client.stream("POST", "/v1/messages", json=LONG) as answer:
            last = [json.loads(x[6:]) for x in answer.iter_lines() if x.startswith("data: ")][-1]
        assert last["type"] == "error" and "exit code 17" in last["error"]["message"]
        assert engine.client.post("/v1/chat/completions", json=ASKED).status_code == 200
        assert engine.wait_ready()["restarts"] == 1
