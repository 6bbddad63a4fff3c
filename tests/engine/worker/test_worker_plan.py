"""What a plan says against what a real worker takes, and what its statistics say of every pool that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from tests.serving import engine_server

EXPERT_BYTES, EXPERTS = 24576, 64  # of tiny-hybrid
NOT_USED = "not used here"


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("tiny-hybrid", []),
        ("tiny-hybrid", ["--kv", "4k"]),
        ("tiny-hybrid", ["--chunk-tokens", "2048", "--host-memory", "1m"]),
        ("smollm2-moe", []),
        ("smollm2-moe", ["--host-memory", "200m", "--preset", "chat"]),
        ("smollm2-moe", ["--device", "emulated", "--moe-backend", "offload", "--device-memory", "1g"]),
    ],
)
def test_case_45_a_first_full_chunk_takes_what_the_plan_says(models_dir: Path, model: str, flags: list[str]) -> None:
    """The peak of a real forward at full chunk size within 2 % of the plan, in a process of its own."""
    with engine_server(model, models_dir, flags=flags) as engine:
        memory = engine.get("/v1/stats")["engine"]["memory"]
        process = engine.get("/v1/engine/memory")["process"]
    assert 0.98 <= memory["planned_bytes"] / memory["actual_bytes"] <= 1.02, memory
    assert process["planned_bytes"] == memory["planned_bytes"] and process["actual_bytes"] == memory["actual_bytes"]
    assert memory["loading_bytes"] <= 1.05 * memory["actual_bytes"], "nothing is held twice while loading"
    assert process["high_water_bytes"] >= memory["resident_bytes"] // 2


@pytest.mark.parametrize("backend", ["auto", "fused", "cpu", "offload", "hybrid"])
@pytest.mark.parametrize("device", ["cpu", "emulated", "disk"])
def test_case_48_every_pool_is_effective_or_said_to_be_unused(models_dir: Path, device: str, backend: str) -> None:
    """Each pool is given a value that no default has; statistics of the real worker say it, or that it is not used."""
    if device == "disk" and backend in ("fused", "cpu", "hybrid"):
        pytest.skip("refused: these need all experts in RAM")
    slots = EXPERTS if backend == "fused" and device == "emulated" else 19
    memory = (EXPERTS - 3) * EXPERT_BYTES if device == "disk" else 3 << 30
    asked = {
        "kv": 3333, "kv-dtype": "f32", "moe-slots": slots, "host-memory": memory, "device-memory": 777 << 20,
        "moe-backend": backend, "device": "emulated" if device == "emulated" else "cpu", "chunk-tokens": 96,
        "max-running-requests": 3, "preset": "chat",
    }  # fmt: skip
    with engine_server("tiny-hybrid", models_dir, flags=[f"--{k}={v}" for k, v in asked.items()]) as engine:
        told = engine.get("/v1/stats")["engine"]["settings"]
        map_ = engine.get("/v1/engine/memory")
    assert told["kv_tokens"] == told["window_tokens"] == map_["kv"]["tokens"] == 3333
    assert (told["kv_dtype"], told["chunk_tokens"], told["max_running"]) == ("f32", 96, 3)
    assert told["preset"] == "chat"
    assert told["device_memory"] == (777 << 20 if device == "emulated" else NOT_USED)
    assert told["host_memory"] == memory
    effective = told["moe_backend"]
    assert effective == backend or backend == "auto" or (device, backend) == ("cpu", "fused")
    uses_slots = effective in ("offload", "hybrid") or (effective == "fused" and device == "emulated")
    assert told["moe_slots"] == (slots if uses_slots else NOT_USED)


@pytest.mark.parametrize("tokens", [256, 1000, 4097])
def test_case_43_as_many_tokens_as_were_asked_for_are_served(models_dir: Path, tokens: int) -> None:
    """A request of exactly N tokens, prompt and answer together, and one token more is refused."""
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", str(tokens)]) as engine:
        made: dict[str, int] = engine.client.post("/v1/completions", json=_body(20, 1)).json()["usage"]
        spare = tokens - made["prompt_tokens"] - 8
        for _ in range(4):  # towards a prompt that leaves room for 8 tokens
            answer = engine.client.post("/v1/completions", json=_body(20 + spare, 8))
            if answer.status_code == 200 and answer.json()["usage"]["prompt_tokens"] + 8 == tokens:
                break
            counted = engine.get("/v1/requests?limit=1")["requests"][0]["prompt_tokens"]
            spare -= counted + 8 - tokens
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 8, answer.text
        assert answer.json()["usage"]["total_tokens"] == tokens
        assert engine.client.post("/v1/completions", json=_body(20 + spare, 9)).status_code == 400


def _body(words: int, output: int) -> dict[str, object]:
    return {"prompt": " a" * words, "max_tokens": output, "logit_bias": {"2": -100}, "temperature": 0}


@pytest.mark.parametrize("preset", ["minimum", "chat", "agent"])
def test_case_43_presets_are_tokens_too(models_dir: Path, preset: str) -> None:
    least = {"minimum": 4096, "chat": 10240, "agent": 51200}[preset]
    plan = plan_model(models_dir / "smollm2-moe", Settings(preset=preset))
    assert plan.kv_tokens >= least and plan.window_tokens >= least
