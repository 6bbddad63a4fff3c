"""A real model over every tier: the same bits everywhere, sizes as asked, and a backend that was tried before it is used."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.device import choose, emulated
from engine.device.clock import ModelClock
from engine.experts.audit import ExpertsDamaged
from engine.experts.tiered import Tiered
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, load
from engine.scheduler.step import Slice
from engine.weights.manifest import load_manifest

BASE = {"kv_tokens": 1024, "checkpoint_bytes": 1 << 20, "chunk_tokens": 64, "max_running": 2}
STEPS = 96


@pytest.fixture
def modelled(monkeypatch):
    """Emulated devices count modelled time, so that nothing here depends on how busy this machine is. Keys that are set are
    further fields of their speeds."""
    more: dict[str, float] = {}

    def make(speeds):
        return emulated.EmulatedDevice(replace(speeds, **more), ModelClock())

    monkeypatch.setattr(choose, "EmulatedDevice", make)
    return more


def opened(models_dir: Path, fill_gbs: float = 1.0, host_gbs: float = 2.0, found: str | None = None, **asked) -> Loaded:
    directory = models_dir / "tiny-hybrid"
    plan = plan_model(directory, Settings(**{**BASE, **asked})).require()
    return load(directory, plan, 2, options=Options("f32", fill_gbs, host_gbs, backend=found))


def logits(loaded: Loaded, tokens: list[int], chunks: list[int], between=lambda: None) -> torch.Tensor:
    """Logits [tokens, vocab] of a sequence computed in the given chunks."""
    pools = loaded.pools
    pages = pools.pages.alloc(-(-len(tokens) // pools.page_tokens))
    state = pools.states.alloc()
    loaded.runner.zero_state(state)
    rows, done = [], 0
    for n in chunks:
        ids, batch = loaded.runner.batches.build([Slice(0, tokens[done : done + n], done, pages, state)])
        with torch.inference_mode():
            rows.append(loaded.runner.model.forward(ids, batch, torch.arange(n), list))
        done += n
        between()
    for page in pages:
        pools.pages.release(page)
    pools.states.release(state)
    return torch.cat(rows)


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return torch.randint(0, 49000, (STEPS,), generator=torch.Generator().manual_seed(5)).tolist()


@pytest.fixture(scope="module")
def expected(models_dir, prompt) -> torch.Tensor:
    return logits(opened(models_dir), prompt, [STEPS])


def chunked(size: int) -> list[int]:
    return [size] * (STEPS // size) + ([STEPS % size] if STEPS % size else [])


@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_tier_size_split_and_chunking_gives_the_same_bits(models_dir, prompt, expected, modelled, data):
    bank = load_manifest(models_dir / "tiny-hybrid").geometry
    every = bank.moe_layers * bank.experts
    slots = data.draw(st.sampled_from([every, every // 2, bank.top_k + 1]), "slots")
    tier = data.draw(st.sampled_from(["cpu", "emulated", "disk"]), "tier")
    if tier == "disk":
        slots = min(slots, every - 1)
        asked = {"host_memory": slots * bank.expert_bytes}
    else:
        backend = data.draw(st.sampled_from(["offload", "hybrid", "fused", "cpu"]), "backend")
        asked = {"device": tier, "moe_backend": backend, "moe_slots": None if backend == "fused" else slots}
    loaded = opened(models_dir, **asked)
    experts = loaded.experts
    if isinstance(experts, Tiered) and experts.split is not None:
        experts.split.fixed = data.draw(st.sampled_from([None, 0.0, 1.0]), "fill share")

    def between():
        if isinstance(experts, Tiered):
            experts.resize(data.draw(st.integers(bank.top_k, slots)))

    got = logits(loaded, prompt, chunked(data.draw(st.sampled_from([1, 7, 64, 512]), "chunk")), between)
    assert torch.equal(got, expected)
    experts.close()


MACHINES = {
    "laptop": ("cpu", {}),
    "laptop with less memory than the experts take": ("offload", {"host_memory": 20 * 24576}),
    "device that holds everything": ("fused", {"device": "emulated", "moe_slots": 64}),
    "fast link and weak processor": (
        "offload",
        {"device": "emulated", "moe_slots": 24, "fill_gbs": 25.0, "row_s": 1e-4},
    ),
    "slow link to fast memory": ("cpu", {"device": "emulated", "moe_slots": 4, "fill_gbs": 0.01, "host_gbs": 50.0}),
    "link and memory of one kind": (
        "hybrid",
        {"device": "emulated", "moe_slots": 40, "fill_gbs": 20.0, "host_gbs": 50.0},
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_case_50_every_backend_is_chosen_on_some_machine_by_a_real_decode(
    models_dir, prompt, expected, modelled, caplog, machine
):
    backend, asked = MACHINES[machine]
    modelled.update({key: value for key, value in asked.items() if key == "row_s"})
    asked = {"host_gbs": 50.0, **{key: value for key, value in asked.items() if key != "row_s"}}
    with caplog.at_level(logging.INFO):
        loaded = opened(models_dir, moe_backend="auto", **asked)
    assert loaded.backend == backend, loaded.decision
    assert torch.equal(logits(loaded, prompt, [64, 32]), expected)
    report = loaded.report()
    assert report["backend"] == backend
    if "device" in asked:
        rates = report["experts"]["decision"]["tokens_per_s"]
        assert max(rates, key=rates.get) == backend or rates[backend] * 1.02 >= max(rates.values())
        assert "rejected: " in caplog.text and f"expert backend: {backend}" in caplog.text
    loaded.pools.check()
    assert loaded.pools.pages.used == 0
    if backend == "cpu" and loaded.pools.slots is not None:
        assert loaded.pools.slots.used == 0, "slots that nobody uses are given back"
    loaded.experts.close()


@pytest.mark.parametrize("found", ["cpu", "hybrid", "offload"])
def test_what_an_earlier_start_found_is_not_sought_again(models_dir, prompt, expected, modelled, found):
    asked = {"device": "emulated", "moe_slots": 24, "fill_gbs": 25.0, "host_gbs": 50.0}
    modelled["row_s"] = 1e-4  # where a decode would choose offload, see above
    loaded = opened(models_dir, moe_backend="auto", found=found, **asked)
    assert loaded.backend == found == loaded.report()["backend"]
    decision = loaded.report()["experts"]["decision"]
    assert decision == {"backend": found, "tokens_per_s": {}, "words": f"{found}, as found when the engine was started"}
    assert torch.equal(logits(loaded, prompt, [64, 32]), expected)
    assert (loaded.pools.slots.used == 0) == (found == "cpu")
    loaded.pools.check()
    loaded.experts.close()
    assert opened(models_dir, moe_backend="offload", found="cpu", **asked).backend == "offload", "asked for"
    assert opened(models_dir, moe_backend="auto", found="fused", **asked).backend != "fused", "there is no room for it"


def test_case_49_experts_are_checked_after_each_of_twenty_resizes(models_dir, prompt, expected):
    loaded = opened(models_dir, moe_backend="offload", moe_slots=40)
    sizes = iter([4, 40, 13, 39, 2] * 4)
    got = logits(loaded, prompt, [70, *[1] * 19, 7], lambda: loaded.experts.resize(next(sizes, 40)))
    assert torch.equal(got, expected)
    assert loaded.experts.audit.checked >= 20
    loaded.experts.close()


def test_case_50_a_link_that_becomes_slow_after_the_choice_is_reported(models_dir, prompt, modelled, caplog):
    """The choice was confirmed by a real decode; more than twice as slow later is said once, and its end too."""
    modelled["row_s"] = 1e-4
    loaded = opened(models_dir, moe_backend="auto", device="emulated", moe_slots=36, fill_gbs=25.0, host_gbs=50.0)
    assert loaded.backend == "offload" and loaded.experts.watch.normal_s > 0
    told: list[bool] = []
    loaded.experts.watch.changed = lambda: told.append(loaded.experts.watch.slow)
    logits(loaded, prompt, [1] * STEPS)
    assert told == []
    loaded.tiers.device.throttle(fill=25.0e9 / 1000)
    for _ in range(8):
        logits(loaded, prompt, [1] * STEPS)
        if told:
            break
    assert told == [True] and loaded.report()["experts"]["watch"]["slow"]
    assert "now take" in caplog.text
    loaded.experts.close()


@pytest.mark.parametrize("asked", [{"moe_backend": "offload", "moe_slots": 2}, {"host_memory": 2 * 24576}])
def test_a_changed_byte_in_a_slot_stops_serving(models_dir, prompt, asked):
    loaded = opened(models_dir, **asked)
    tiered = loaded.experts
    logits(loaded, prompt, [STEPS])
    arena = loaded.runner._arena
    slot = int(tiered.table.holder.argmax())
    at = int(loaded.tiers.slots[slot]) - arena.data_ptr()
    arena[at + 100] ^= 1
    with pytest.raises(ExpertsDamaged, match=f"slot {slot} and its source"):
        for _ in range(2):
            tiered.resize(2)
    tiered.close()


def test_memory_after_the_first_forward_is_within_the_plan(models_dir):
    loaded = opened(models_dir, moe_backend="hybrid", moe_slots=20)
    memory = loaded.report()["memory"]
    assert memory["resident_bytes"] > 0
    assert memory["planned_bytes"] == loaded.plan.total_bytes
    assert memory["actual_bytes"] >= loaded.plan.slabs * loaded.plan.slab_bytes
    loaded.experts.close()
