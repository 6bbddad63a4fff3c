"""Saved states of a real engine by hand: pinned, let go of, dropped, cleaned up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Engine, engine_server


@pytest.fixture(scope="module")
def served(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
        for question in ("What is red?", "Why is it blue?"):
            body = {
                "messages": [
                    {"role": "system", "content": "You are brief. " * 20},
                    {"role": "user", "content": question},
                ]
            }
            engine.client.post("/v1/chat/completions", json={**body, "max_tokens": 4}).raise_for_status()
        yield engine


def states(engine: Engine) -> list[dict[str, Any]]:
    return engine.get("/v1/stats")["engine"]["checkpoints"]["list"]


def act(engine: Engine, what: str, **named: Any) -> Any:
    return engine.client.post(f"/v1/engine/anchors/{what}", json=named)


def test_a_state_is_pinned_let_go_of_and_dropped(served: Engine) -> None:
    before = states(served)
    one = max(before, key=lambda state: state["position"])
    named = {name: one[name] for name in ("id", "position", "line")}
    assert [state["pinned"] for state in before] == [False] * len(before)
    assert act(served, "pin", **named).json()["pinned"] == 1
    assert [s["id"] for s in states(served) if s["pinned"]] == [one["id"]]
    assert act(served, "unpin", **named).json()["pinned"] == 0
    told = act(served, "drop", **named).json()
    assert (told["dropped"], told["bytes"]) == (1, one["bytes"])
    assert one["id"] not in [state["id"] for state in states(served)]
    gone = act(served, "drop", **named)
    assert gone.status_code == 400 and "not there any more" in gone.text


def test_cleaning_up_leaves_what_sessions_want(served: Engine) -> None:
    wanted = [state["id"] for state in states(served) if state["wanted"]]
    assert act(served, "gc").json()["dropped"] == len(states(served)) - len(wanted) or wanted
    assert [state["id"] for state in states(served)] == wanted


@pytest.mark.parametrize("named", [{}, {"id": 1, "position": 4}, {"id": True, "position": 4, "line": "x"}])
def test_a_state_that_is_not_named_is_refused(served: Engine, named: dict[str, Any]) -> None:
    assert act(served, "pin", **named).status_code == 400


def test_other_acts_do_not_exist_and_nobody_without_the_token_acts(served: Engine) -> None:
    assert act(served, "paint").status_code == 404
    session = served.session()
    token = {"authorization": "Bearer " + session["token"]}
    assert served.client.post("/v1/engine/anchors/gc", json={}, headers=token).status_code in (401, 403)


def test_power_is_told_as_far_as_this_machine_tells_it(served: Engine) -> None:
    told = served.get("/v1/engine/power")
    assert told["schema"] == "ft.power/1" and set(told) == {"schema", "power_w", "energy_j", "temperature_c", "meters"}
