"""The routes of memory before a worker without a model: what is passed on, what is refused here, and what a start tells."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import jsonschema
import pytest

from ftagent.schemas import schema_of
from tests.engine.front.fakes import fake_engine
from tests.serving import Engine

ROUTES = (("GET", ""), ("POST", "/plan"), ("POST", "/apply"))


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with fake_engine(models_dir) as (engine, _):
        yield engine


def ask(engine: Engine, op: str, **body: object) -> httpx.Response:
    return engine.client.post(f"/v1/engine/memory/{op}", json=body)


def test_only_the_administrator_of_this_machine_comes_in(engine: Engine) -> None:
    session = engine.session()
    for method, path in ROUTES:
        url = f"/v1/engine/memory{path}"
        with httpx.Client(base_url=engine.url, trust_env=False) as stranger:
            assert stranger.request(method, url, json={"auto": True}).status_code == 401
        own = {"authorization": f"Bearer {session['token']}"}
        assert engine.client.request(method, url, json={"auto": True}, headers=own).status_code == 401
        page = engine.client.request(method, url, json={"auto": True}, headers={"host": "evil.example"})
        assert page.status_code == 403


@pytest.mark.parametrize("op", ["plan", "apply"])
def test_what_is_asked_reaches_the_worker(engine: Engine, op: str) -> None:
    asked = ask(engine, op, kv_tokens=65536, moe_slots=12).json()["asked"]
    assert {**asked, "n": 0} == {
        "t": "memory", "n": 0, "op": op, "kv_tokens": 65536, "moe_slots": 12, "preset": None, "auto": False
    }  # fmt: skip
    assert ask(engine, op, preset="agent", kv_tokens=60000).json()["asked"]["preset"] == "agent"
    assert ask(engine, op, auto=True).json()["asked"]["auto"] is True
    assert ask(engine, op, preset="auto").json()["asked"]["auto"] is True
    assert engine.get("/v1/engine/memory")["asked"]["op"] == "map"


@pytest.mark.parametrize("op", ["plan", "apply"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Nothing is asked for"),
        ({"kv_tokens": 0}, "kv_tokens: expected at least 1"),
        ({"moe_slots": -3}, "moe_slots: expected at least 1"),
        ({"kv_tokens": "64k"}, "kv_tokens: expected an integer"),
        ({"preset": "huge"}, "'huge' is none of auto, minimum, chat, agent"),
        ({"auto": True, "kv_tokens": 4096}, "auto: goes with no size"),
        ({"kv_tokens": 1}, "kv_tokens: 1 is too few tokens to serve anything: 256 are the least"),
        ({"kv_tokens": 255}, "kv_tokens: 255 is too few tokens to serve anything: 256 are the least"),
        ({"kv_tokens": -(1 << 40)}, "kv_tokens: expected at least 1"),
        ({"kv_tokens": 1 << 64}, "kv_tokens"),
        ({"moe_slots": 1 << 64}, "moe_slots"),
        ({"kv_tokens": 99999999999999999 << 20}, "kv_tokens: the number is out of range"),
        ({"kv_tokens": 257}, "KV 257 is odd. Give 256."),
    ],
)
def test_nonsense_is_refused_with_a_reason(engine: Engine, op: str, body: dict[str, object], words: str) -> None:
    answer = ask(engine, op, **body)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]


def test_while_it_loads_the_map_is_the_plans_and_a_change_waits(models_dir: Path) -> None:
    with fake_engine(models_dir, ready=False, mode="wait") as (engine, control):
        told = engine.get("/v1/engine/memory")
        jsonschema.validate(told, schema_of("ft.memory/1"))
        assert told["state"] in ("starting", "loading") and told["kv"]["tokens"] > 0
        with pytest.raises(httpx.ReadTimeout):
            engine.client.post("/v1/engine/memory/plan", json={"kv_tokens": 4096}, timeout=1.0)
        control.go()
        assert ask(engine, "plan", kv_tokens=4096).json()["asked"]["kv_tokens"] == 4096


def restarted(engine: Engine) -> dict[str, object]:
    """What /ready says of the worker after the one that is killed here."""
    before = engine.get("/ready")["restarts"]
    os.kill(engine.worker_pid(), signal.SIGKILL)
    deadline = time.monotonic() + 180
    while (state := engine.client.get("/ready").json())["restarts"] == before or state["state"] != "ready":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return state


def test_what_was_set_by_hand_is_asked_of_the_next_worker_before_anything_else(models_dir: Path) -> None:
    with fake_engine(models_dir) as (engine, control):
        for body in (
            {"kv_tokens": 4096},
            {"preset": "agent"},
            {"moe_slots": 12},
            {"kv_tokens": 2048},
            {"moe_slots": 16},
        ):
            assert ask(engine, "apply", **body).status_code == 200
        assert ask(engine, "apply", kv_tokens=257).status_code == 400
        ask(engine, "plan", kv_tokens=8192)
        assert restarted(engine)["warning"] is None
        first, second = engine.get("/v1/stats")["engine"]["memory"]
        nothing = {"t": "memory", "op": "apply", "moe_slots": None, "kv_tokens": None, "again": True, "n": 0}
        assert {**first, "n": 0} == {**nothing, "preset": "agent", "auto": False}
        assert {**second, "n": 0} == {**nothing, "moe_slots": 16, "kv_tokens": 2048, "preset": None, "auto": False}
        control.set(refuse_again=True)
        warning = str(restarted(engine)["warning"])
        assert "--moe 16" in warning and "--kv 2048" in warning and "--preset agent" in warning and "is odd" in warning
        assert engine.get("/v1/stats")["worker"]["warning"] == warning
        assert warning.split(":")[0] in engine.log.read_text()
