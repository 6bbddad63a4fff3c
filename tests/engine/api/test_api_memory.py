"""Memory of a real engine over HTTP on each tier: the map, a prediction that changes nothing, changes while requests run."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ftagent.schemas import schema_of
from tests.serving import Engine, engine_server

EXPERT_BYTES = 24576  # of tiny-hybrid, which has 8 layers of 8 experts
TIERS = {
    "disk": ["--host-memory", str(40 * EXPERT_BYTES)],
    "device": ["--device", "emulated", "--moe-backend", "offload", "--device-memory", "160m"],
    "pages only": [],
}
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "count " * 300}], "max_tokens": 300, "stream": True}


@pytest.fixture(scope="module", params=TIERS)
def served(request: pytest.FixtureRequest, models_dir: Path) -> Iterator[tuple[str, Engine]]:
    with engine_server("tiny-hybrid", models_dir, flags=[*TIERS[request.param], "--preset", "agent"]) as engine:
        yield request.param, engine


def told(engine: Engine) -> dict[str, Any]:
    answer = engine.get("/v1/engine/memory")
    jsonschema.validate(answer, schema_of("ft.memory/1"))
    return answer


def change(engine: Engine, op: str = "apply", **asked: Any) -> dict[str, Any]:
    answer = engine.client.post(f"/v1/engine/memory/{op}", json=asked)
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), schema_of("ft.memory-move/1"))
    return answer.json()


def test_the_map_adds_up_and_says_what_an_agent_gets(served: tuple[str, Engine]) -> None:
    tier, engine = served
    map_ = told(engine)
    split = map_["arena"]["split"]
    assert sum(split.values()) + map_["arena"]["free_slabs"] + map_["arena"]["lent_slabs"] == map_["arena"]["slabs"]
    assert map_["kv"]["tokens"] >= 50 << 10 and map_["preset"] == "agent" and map_["state"] == "ready"
    assert (map_["experts"] is None) == (tier == "pages only")
    if map_["experts"] is not None:
        assert map_["experts"]["total"] == 64 and map_["experts"]["slots"] >= map_["experts"]["least"]
    assert map_["process"]["high_water_bytes"] >= map_["process"]["resident_bytes"] // 2 > 0
    assert map_["foreign"] is None or map_["foreign"]["available_bytes"] > 0
    window = engine.get("/v1/models")["data"][0]
    assert (
        map_["kv"]["window_tokens"] in window.values() or map_["kv"]["window_tokens"] == engine.get("/ready")["window"]
    )


def test_a_prediction_changes_nothing_and_a_change_is_what_was_predicted(served: tuple[str, Engine]) -> None:
    _, engine = served
    before = told(engine)
    guess = change(engine, "plan", kv_tokens=12_000)
    after = told(engine)
    assert after["arena"] == before["arena"] and after["kv"]["tokens"] == before["kv"]["tokens"]
    assert not guess["applied"] and guess["then"]["kv_tokens"] >= 12_000
    done = change(engine, kv_tokens=12_000)
    assert done["applied"] and done["complete"] and done["then"]["kv_tokens"] == guess["then"]["kv_tokens"]
    now = told(engine)
    assert now["kv"]["tokens"] == guess["then"]["kv_tokens"] and now["kv"]["pinned"] and not now["auto"]
    assert engine.get("/ready")["window"] == now["kv"]["window_tokens"] <= now["kv"]["tokens"]
    assert engine.get("/v1/stats")["engine"]["settings"]["kv_tokens"] == now["kv"]["tokens"]
    change(engine, auto=True)
    assert told(engine)["kv"]["pinned"] is False


def test_presets_are_what_they_promise_live(served: tuple[str, Engine]) -> None:
    tier, engine = served
    change(engine, preset="minimum")
    small = told(engine)
    assert small["kv"]["tokens"] == 4096
    if tier != "pages only":
        assert small["experts"]["slots"] == 8, "one layer"
    change(engine, preset="chat")
    assert told(engine)["kv"]["tokens"] == 10 << 10
    change(engine, preset="agent")
    large = told(engine)
    assert large["kv"]["tokens"] >= 50 << 10
    if tier != "pages only":
        assert large["experts"]["slots"] >= 16, "two layers"


def test_slots_are_given_exactly_where_there_are_slots(served: tuple[str, Engine]) -> None:
    tier, engine = served
    if tier == "pages only":
        answer = engine.client.post("/v1/engine/memory/apply", json={"moe_slots": 9})
        assert answer.status_code == 400 and "slots" in answer.json()["error"]["message"]
        return
    for slots in (9, 30, 17):
        assert change(engine, moe_slots=slots)["then"]["moe_slots"] == slots
        assert told(engine)["experts"]["slots"] == slots
        assert engine.get("/v1/stats")["engine"]["settings"]["moe_slots"] == slots
    answer = engine.client.post("/v1/engine/memory/apply", json={"moe_slots": 65})
    assert answer.status_code == 400
    change(engine, auto=True)


@pytest.mark.parametrize("op", ["plan", "apply"])
def test_what_could_never_be_is_refused_with_a_number(served: tuple[str, Engine], op: str) -> None:
    _, engine = served
    before = told(engine)["arena"]["split"]
    answer = engine.client.post(f"/v1/engine/memory/{op}", json={"kv_tokens": 2_000_000_000})
    assert answer.status_code == 400 and answer.json()["error"]["message"]
    assert told(engine)["arena"]["split"] == before


def test_changes_in_mid_answer_fail_nobody_and_change_no_word(served: tuple[str, Engine]) -> None:
    """Never 503, and the same text as in an undisturbed run."""
    tier, engine = served
    change(engine, preset="agent")
    undisturbed = _answer(engine)
    results: list[str] = []
    streaming = threading.Thread(target=lambda: results.append(_answer(engine)))
    streaming.start()
    statuses = []
    for i in range(12):
        asked: dict[str, Any] = [{"kv_tokens": 8192}, {"preset": "agent"}, {"kv_tokens": 20_000}, {"auto": True}][i % 4]
        if tier != "pages only" and i % 4 == 2:
            asked = {"moe_slots": 12}
        statuses.append(engine.client.post("/v1/engine/memory/apply", json=asked).status_code)
        statuses.append(engine.client.get("/v1/engine/memory").status_code)
    streaming.join(120)
    assert set(statuses) <= {200, 202} and results == [undisturbed]
    change(engine, auto=True)


def _answer(engine: Engine) -> str:
    with engine.client.stream("POST", "/v1/chat/completions", json=LONG) as stream:
        assert stream.status_code == 200
        lines = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {")]
    assert all("error" not in line for line in lines)
    return "".join(choice["delta"].get("content") or "" for line in lines for choice in line["choices"])


def test_what_serves_nothing_or_is_not_there_is_refused_and_changes_nothing(served: tuple[str, Engine]) -> None:
    """As a start refuses it, and with a number that works; the least is taken, and serves."""
    tier, engine = served
    before = told(engine)
    asked = [("kv_tokens", 1), ("kv_tokens", 255), ("kv_tokens", 1 << 62), ("kv_tokens", -1)]
    asked += [("moe_slots", 1), ("moe_slots", 65), ("moe_slots", 1 << 62), ("moe_slots", -1)]
    for op in ("plan", "apply"):
        for name, value in asked:
            answer = engine.client.post(f"/v1/engine/memory/{op}", json={name: value})
            assert answer.status_code == 400, (name, value, answer.text)
            if value > 0 and not (tier == "pages only" and name == "moe_slots"):
                assert any(digits.isdigit() for digits in answer.json()["error"]["message"].replace(",", "").split())
    after = told(engine)
    assert (after["kv"]["tokens"], after["arena"]["split"]) == (before["kv"]["tokens"], before["arena"]["split"])
    assert change(engine, kv_tokens=256)["then"]["kv_tokens"] == 256
    short = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    assert engine.client.post("/v1/chat/completions", json=short).status_code == 200
    change(engine, auto=True)


def test_what_was_set_by_hand_is_there_again_after_the_worker_was_killed(served: tuple[str, Engine]) -> None:
    tier, engine = served
    change(engine, kv_tokens=2048, **({} if tier == "pages only" else {"moe_slots": 16}))
    before, restarts = told(engine), engine.get("/ready")["restarts"]
    os.kill(engine.worker_pid(), signal.SIGKILL)
    deadline = time.monotonic() + 180
    while (state := engine.client.get("/ready").json())["restarts"] == restarts or state["state"] != "ready":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    after = told(engine)
    for part, names in (("kv", ("tokens", "window_tokens", "pinned")), ("experts", ("slots", "pinned"))):
        if before[part] is not None:
            assert [after[part][name] for name in names] == [before[part][name] for name in names]
    assert after["kv"]["tokens"] == 2048 == state["window"] and after["kv"]["pinned"] and state["warning"] is None
    served_ = engine.client.post("/v1/chat/completions", json={**LONG, "stream": False, "max_tokens": 80})
    assert served_.status_code == 200
    reasons = [move["reason"] for move in told(engine)["moves"]]
    assert reasons[:1] == ["set by hand, before the worker was restarted"], reasons
    change(engine, auto=True)
