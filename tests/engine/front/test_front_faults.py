"""What a client sees when the worker dies, hangs, loads for long or talks nonsense."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.engine.front.fakes import Control, fake_engine
from tests.serving import Engine

LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30000, "stream": True}


@pytest.fixture(scope="module")
def calm(models_dir: Path) -> Iterator[tuple[Engine, Control]]:
    """Shared by the tests that leave the worker alive."""
    with fake_engine(models_dir, ["--heartbeat-s", "0.3"], tokens_per_s=50) as pair:
        yield pair


@pytest.fixture
def faulty(models_dir: Path) -> Iterator[tuple[Engine, Control]]:
    with fake_engine(models_dir, ["--heartbeat-s", "0.3"], tokens_per_s=50) as pair:
        yield pair


def data_of(engine: Engine, path: str, body: dict[str, Any]) -> tuple[list[Any], float]:
    """All events of a stream and when, in seconds, it ended."""
    began = time.monotonic()
    with engine.client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        events = [json.loads(x[6:]) for x in answer.iter_lines() if x.startswith("data: {")]
    return events, time.monotonic() - began


@pytest.mark.parametrize(
    ("mode", "cause"),
    [
        ("die", "exit code 17"),
        ("garbage", "broke the protocol"),
        ("freeze", "is stopped"),
    ],
)
def test_a_lost_worker_is_an_error_with_its_cause_in_every_dialect(
    faulty: tuple[Engine, Control], mode: str, cause: str
) -> None:
    engine, control = faulty
    control.set(mode=mode, tokens_per_s=10)
    answers: dict[str, tuple[list[Any], float]] = {}
    paths = {"/v1/messages": LONG, "/v1/chat/completions": LONG, "/v1/responses": {"input": "hi", "stream": True}}
    threads = [
        threading.Thread(target=lambda p=p, b=b: answers.update({p: data_of(engine, p, b)})) for p, b in paths.items()
    ]
    for thread in threads:
        thread.start()
    whole = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False})
    for thread in threads:
        thread.join()
    assert whole.status_code == 503 and cause in whole.json()["error"]["message"]
    last = {path: events[-1] for path, (events, _) in answers.items()}
    assert last["/v1/messages"]["type"] == "error"
    assert last["/v1/messages"]["error"]["type"] == "overloaded_error"
    assert cause in last["/v1/messages"]["error"]["message"]
    assert cause in last["/v1/chat/completions"]["error"]["message"]
    assert last["/v1/responses"]["type"] == "response.failed"
    assert cause in last["/v1/responses"]["response"]["error"]["message"]
    assert max(seconds for _, seconds in answers.values()) < 45, "as long as a stall"
    # The next request is served, without a wait for the client to arrange.
    control.set()
    events, _ = data_of(engine, "/v1/chat/completions", {**LONG, "max_tokens": 3})
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert engine.get("/ready")["restarts"] == 1
    assert f"is gone{'' if mode == 'die' else ', killed'}: The worker" in engine.log.read_text()
    ends = [r["end"] for r in engine.get("/v1/requests")["requests"]]
    assert ends == ["error"] * 4 + ["length"]


def test_a_worker_of_another_version_says_that_ft_was_updated(faulty: tuple[Engine, Control]) -> None:
    engine, control = faulty
    pid = engine.worker_pid()
    control.set(version=99)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while (state := engine.client.get("/ready").json())["state"] != "crashed":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    assert "ft was updated" in state["message"] and "version 99" in state["message"]
    assert "ft engine restart" in state["hint"]
    answer = engine.client.post("/v1/chat/completions", json=LONG)
    assert answer.status_code == 503 and "ft engine restart" in answer.json()["error"]["message"]


def test_sdks_raise_on_an_error_in_mid_stream(faulty: tuple[Engine, Control]) -> None:
    engine, control = faulty
    control.set(mode="die", tokens_per_s=10)
    client = anthropic.Anthropic(base_url=engine.url, auth_token=engine.admin_token, max_retries=0)
    with (
        pytest.raises(anthropic.APIStatusError, match="exit code 17"),
        client.messages.stream(model="m", max_tokens=3000, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        stream.until_done()
    control.set(mode="die", tokens_per_s=10)
    chat = openai.OpenAI(base_url=engine.url + "/v1", api_key=engine.admin_token, max_retries=0)
    with pytest.raises(openai.APIError, match="exit code 17"):
        list(chat.chat.completions.create(model="m", **LONG))


def test_heartbeats_of_the_kind_each_client_counts(calm: tuple[Engine, Control]) -> None:
    engine, control = calm
    control.set(silent_s=1.5)
    body = {**LONG, "max_tokens": 2}
    events, _ = data_of(engine, "/v1/messages", body)
    assert [e["type"] for e in events].count("ping") >= 3
    thinking = {**body, "thinking": {"type": "adaptive"}, "max_tokens": 20}
    events, _ = data_of(engine, "/v1/messages", thinking)
    assert events[1]["content_block"]["type"] == "thinking"
    empty = {"type": "thinking_delta", "thinking": ""}
    assert [e.get("delta") for e in events].count(empty) >= 3 and "ping" not in [e["type"] for e in events]
    events, _ = data_of(engine, "/v1/chat/completions", body)
    assert [e["choices"][0]["delta"] for e in events[1:4]] == [{"content": ""}] * 3
    events, _ = data_of(engine, "/v1/responses", {"input": "hi", "stream": True, "max_output_tokens": 2})
    assert [e["type"] for e in events].count("response.in_progress") >= 4
    assert engine.get("/v1/requests")["requests"][-1]["heartbeats"] >= 3


def test_hang_ups_free_everything(calm: tuple[Engine, Control]) -> None:
    engine, control = calm
    control.set(tokens_per_s=50)
    earlier = len(engine.get("/v1/requests")["requests"])
    limits = httpx.Limits(max_connections=None)
    headers = {"authorization": f"Bearer {engine.admin_token}"}
    with httpx.Client(base_url=engine.url, headers=headers, limits=limits, trust_env=False) as client:
        streams = []
        for i in range(200):
            path, body = [("/v1/messages", LONG), ("/v1/chat/completions", LONG)][i % 2]
            request = client.build_request("POST", path, json=body)
            streams.append(client.send(request, stream=True))
        assert engine.get("/v1/stats")["running"] == 200
        for stream in streams:
            stream.close()
    assert engine.wait_idle()["engine"]["running"] == 0
    assert {r["end"] for r in engine.get("/v1/requests")["requests"][earlier:]} == {"client_gone"}
    events, _ = data_of(engine, "/v1/chat/completions", {**LONG, "max_tokens": 3})
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_a_hang_up_before_a_whole_answer_stops_the_work(calm: tuple[Engine, Control]) -> None:
    engine, control = calm
    control.set(tokens_per_s=1)
    with pytest.raises(httpx.ReadTimeout):
        engine.client.post("/v1/messages", json={**LONG, "stream": False}, timeout=0.5)
    assert engine.wait_idle()["engine"]["running"] == 0


def test_a_request_is_served_while_the_worker_says_that_it_still_loads(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="early") as (engine, control):
        answer = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False, "max_tokens": 3})
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3
        state = engine.client.get("/ready")
        assert state.status_code == 503 and state.json()["state"] == "loading" and state.json()["progress"] == 0.5
        told = engine.client.post("/v1/engine/memory/apply", json={"kv_tokens": 4096})
        assert told.status_code == 200 and told.json()["asked"]["kv_tokens"] == 4096
        control.go()
        engine.wait_ready()


def test_requests_wait_with_heartbeats_while_the_worker_loads(models_dir: Path) -> None:
    with fake_engine(models_dir, ["--heartbeat-s", "0.2"], ready=False, mode="wait") as (engine, control):
        while engine.client.get("/ready").json()["state"] != "loading":
            time.sleep(0.02)
        state = engine.client.get("/ready")
        assert state.status_code == 503 and state.json()["progress"] == 0.5 and state.headers["retry-after"]
        with engine.client.stream("POST", "/v1/chat/completions", json={**LONG, "max_tokens": 3}) as answer:
            lines = (x for x in answer.iter_lines() if x.startswith("data: "))
            next(lines)
            for _ in range(3):
                assert json.loads(next(lines)[6:])["choices"][0]["delta"] == {"content": ""}
            control.go()
            assert list(lines)[-1] == "data: [DONE]"


def test_a_worker_that_says_it_cannot_serve_is_not_started_again(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="fail") as (engine, _):
        answer = engine.client.post("/v1/messages", json={**LONG, "stream": False})
        assert answer.status_code == 529 and "bank 3 is corrupt." in answer.json()["error"]["message"]
        assert engine.client.get("/ready").json()["state"] == "crashed"
        assert engine.process.wait(120) == 5
        assert "bank 3 is corrupt." in engine.log.read_text()


def test_an_engine_beyond_restarting_says_how_to_go_on(models_dir: Path) -> None:
    with fake_engine(models_dir, patient=False) as (engine, control):
        control.set(mode="die", tokens_per_s=10)
        assert engine.client.post("/v1/chat/completions", json={**LONG, "stream": False}).status_code >= 500
        state = engine.client.get("/ready").json()
        assert (state["state"], state["hint"]) == ("crashed", "ft engine restart")
        late = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False}).json()
        assert "It is restarted" not in late["error"]["message"]


def test_a_refused_request_is_no_crash(calm: tuple[Engine, Control]) -> None:
    engine, control = calm
    control.set(mode="error")
    refused = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False})
    assert refused.status_code == 500 and "No." in refused.json()["error"]["message"]
    assert engine.get("/ready")["restarts"] == 0


def test_stop_over_http(models_dir: Path) -> None:
    with fake_engine(models_dir) as (engine, _):
        worker = engine.worker_pid()
        assert engine.client.post("/v1/engine/stop").status_code == 202
        assert engine.process.wait(120) == 0
        assert not Path(f"/proc/{worker}").exists()
        assert not (engine.runtime_dir / "engine.json").exists()
