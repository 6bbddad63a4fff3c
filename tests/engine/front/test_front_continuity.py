"""A worker that follows another within one engine: the backend stays, and a window that shrank is told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from engine.front.supervision.continuity import Continuity
from tests.engine.front.fakes import fake_engine
from tests.serving import Engine, engine_server


def restarted(engine: Engine) -> dict[str, Any]:
    """What /ready says of the worker after the one that is killed here."""
    before = engine.get("/ready")["restarts"]
    os.kill(engine.worker_pid(), signal.SIGKILL)
    deadline = time.monotonic() + 180
    while (state := engine.client.get("/ready").json())["restarts"] == before or state["state"] != "ready":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return dict(state)


def test_a_window_is_told_as_long_as_it_is_less_than_agents_were_told() -> None:
    kept = Continuity()
    assert kept.arguments() == [] and kept.serves(23_744, "hybrid") == []
    assert kept.arguments() == ["--backend-found", "hybrid"]
    for _ in range(2):  # the second one too
        (sentence,) = kept.serves(11_984, "hybrid")
        assert "11,984" in sentence and "23,744" in sentence
    assert kept.serves(23_744, "hybrid") == []
    kept.moved(4_096)
    assert kept.serves(4_096, "hybrid") == [], "somebody asked for that"
    (sentence,) = kept.serves(4_096, "cpu")
    assert "'cpu'" in sentence and "'hybrid'" in sentence


def test_a_backend_that_was_chosen_while_requests_were_served_is_kept() -> None:
    kept = Continuity()
    assert kept.serves(4_096, "") == [] and kept.arguments() == []
    kept.chosen("hybrid")
    kept.chosen("cpu")  # it is not chosen twice
    assert kept.arguments() == ["--backend-found", "hybrid"]
    assert kept.serves(4_096, "hybrid") == []


def test_a_model_without_experts_has_no_backend_to_keep() -> None:
    kept = Continuity()
    assert kept.serves(4_096, "none") == [] and kept.arguments() == []


def test_the_next_worker_is_given_the_backend_and_a_smaller_window_is_a_warning(models_dir: Path) -> None:
    with fake_engine(models_dir, backend="hybrid", window=20_000) as (engine, control):
        assert "--backend-found" not in engine.get("/v1/stats")["engine"]["arguments"]
        control.set(backend="hybrid", window=10_000)
        state = restarted(engine)
        arguments = engine.get("/v1/stats")["engine"]["arguments"]
        assert arguments[arguments.index("--backend-found") + 1] == "hybrid"
        assert state["window"] == 10_000 and "10,000" in state["warning"] and "20,000" in state["warning"]
        assert state["warning"] in engine.log.read_text()


def test_a_real_worker_computes_with_the_backend_that_was_found_first(models_dir: Path) -> None:
    flags = ["--device", "emulated", "--device-memory", "160m", "--emulate-fill-gbs", "5", "--emulate-host-gbs", "5"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        first, before = engine.get("/v1/stats")["engine"], engine.get("/ready")
        state = restarted(engine)
        second = engine.get("/v1/stats")["engine"]
        assert "rejected: " in str(first) and "as found when the engine was started" in str(second)
        assert second["settings"]["moe_backend"] == first["settings"]["moe_backend"] != "auto"
        assert state["warning"] is None
        assert (
            state["window"] >= before["window"]
        )  # the backend that was found may need less than the one it began with
