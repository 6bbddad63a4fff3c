"""A model that runs while its experts are still being read: the same bits, what cannot be read ends it, and what comes at the end."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.device import choose, emulated
from engine.device.clock import ModelClock
from engine.errors import WeightsError
from engine.memory import planner
from engine.memory.arena import ArenaFull
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, begin, finish, load
from engine.runner.tiers import Tiers
from engine.scheduler.step import Slice
from engine.weights import direct
from engine.weights.manifest import load_manifest

BASE = {"kv_tokens": 1024, "checkpoint_bytes": 1 << 20, "chunk_tokens": 64, "max_running": 2}
PIECE = 32 << 10
TIERS = {
    "cpu": {},
    "offload": {"moe_backend": "offload", "moe_slots": 12},
    "emulated-offload": {"device": "emulated", "moe_backend": "offload", "moe_slots": 12, "device_memory": 64 << 20},
    "emulated-hybrid": {"device": "emulated", "moe_backend": "hybrid", "moe_slots": 12, "device_memory": 64 << 20},
    "emulated-auto": {"device": "emulated", "moe_slots": 12, "device_memory": 64 << 20},
    "emulated-auto with all experts": {"device": "emulated", "moe_slots": 64, "device_memory": 64 << 20},
}


@pytest.fixture
def gate(monkeypatch):
    """Experts come only when somebody needs them, until it is opened. Read in pieces so small that each holds few experts."""
    opened = threading.Event()
    needed: set[tuple[Path, int]] = set()
    read, hurry = direct.FileRead._read, direct.FileRead.hurry

    def gated(self, offset):
        while self.path.name.startswith("experts-") and not opened.is_set() and (self.path, offset) not in needed:
            opened.wait(0.001)
        return read(self, offset)

    def noted(self, spans):
        spans = list(spans)
        needed.update(
            (self.path, at // PIECE * PIECE) for start, end in spans for at in (*range(start, end, PIECE), end - 1)
        )
        hurry(self, spans)

    monkeypatch.setattr(direct, "READ_BYTES", PIECE)
    monkeypatch.setattr(direct.FileRead, "_read", gated)
    monkeypatch.setattr(direct.FileRead, "hurry", noted)
    monkeypatch.setattr(choose, "EmulatedDevice", lambda speeds: emulated.EmulatedDevice(speeds, ModelClock()))
    yield opened
    opened.set()


def opened(how, directory: Path, **asked) -> Loaded:
    plan = plan_model(directory, Settings(**{**BASE, **asked})).require()
    return how(directory, plan, 2, options=Options("f32", 1.0, 2.0))


class Running:
    """One sequence, computed a few tokens at a time."""

    def __init__(self, loaded: Loaded, tokens: list[int]) -> None:
        self.loaded, self.tokens, self.done = loaded, tokens, 0
        pools = loaded.pools
        self.pages, self.state = pools.pages.alloc(-(-len(tokens) // pools.page_tokens)), pools.states.alloc()
        loaded.runner.zero_state(self.state)

    def compute(self, n: int) -> torch.Tensor:
        part = self.tokens[self.done : self.done + n]
        ids, batch = self.loaded.runner.batches.build([Slice(0, part, self.done, self.pages, self.state)])
        self.done += n
        with torch.inference_mode():
            return self.loaded.runner.model.forward(ids, batch, torch.arange(n), list)

    def leave(self) -> None:
        for page in self.pages:
            self.loaded.pools.pages.release(page)
        self.loaded.pools.states.release(self.state)


def logits(loaded: Loaded, tokens: list[int], chunks: list[int]) -> torch.Tensor:
    running = Running(loaded, tokens)
    rows = [running.compute(n) for n in chunks]
    running.leave()
    return torch.cat(rows)


@pytest.mark.parametrize("tier", TIERS)
def test_the_first_request_is_served_before_the_last_expert_is_there_with_the_same_bits(models_dir, gate, tier):
    directory = models_dir / "tiny-hybrid"
    tokens = [7, 300, 12]
    early = opened(begin, directory, **TIERS[tier])
    early.coming.start()
    first = logits(early, tokens, [2, 1])
    assert early.coming.unread_bytes > 0, "not all was there"
    gate.set()
    finish(early)
    assert early.coming is None
    whole = opened(load, directory, **TIERS[tier])
    assert torch.equal(first, logits(whole, tokens, [2, 1]))
    assert torch.equal(logits(early, tokens, [3]), logits(whole, tokens, [3]))
    early.pools.check()
    assert early.pools.pages.used == early.pools.states.used == 0
    for loaded in (early, whole):
        loaded.experts.close()


@pytest.mark.parametrize("backend,slots", [("cpu", 12), ("offload", 24), ("fused", 64), ("hybrid", 40)])
def test_the_backend_is_chosen_between_two_steps_of_a_request(models_dir, gate, monkeypatch, backend, slots):
    """It began with whatever serves early; what it computed holds, and what it learnt and counted."""
    monkeypatch.setattr(Tiers, "candidates", lambda tiers: [backend])
    directory, tokens = models_dir / "tiny-hybrid", [7, 300, 12, 44, 5]
    asked = {"device": "emulated", "moe_slots": slots, "device_memory": 64 << 20}
    early = opened(begin, directory, **asked)
    assert early.backend == "auto"
    first_experts = early.experts
    early.coming.start()
    running = Running(early, tokens)
    got = [running.compute(2), running.compute(1)]
    counted = sum(first_experts.hits) + sum(first_experts.misses)
    gate.set()
    finish(early)
    assert early.backend == backend == early.decision.backend and early.experts is not first_experts
    assert sum(early.experts.hits) + sum(early.experts.misses) > counted
    got += [running.compute(1), running.compute(1)]
    running.leave()
    whole = opened(load, directory)
    assert torch.equal(torch.cat(got), logits(whole, tokens, [2, 1, 1, 1]))
    early.pools.check()
    assert (early.pools.slots.used == 0) == (backend == "cpu")
    early.experts.close()


def test_a_choice_waits_for_memory_and_takes_the_slots_there_are_by_then(models_dir, gate, monkeypatch):
    monkeypatch.setattr(planner, "MIN_SLAB_BYTES", 120 << 10)  # several slabs of slots
    monkeypatch.setattr(Tiers, "candidates", lambda tiers: ["hybrid"])
    early = opened(begin, models_dir / "tiny-hybrid", device="emulated", moe_slots=24, device_memory=64 << 20)
    early.coming.start()
    logits(early, [7, 300, 12], [3])
    gate.set()
    states = [early.pools.states.alloc() for _ in range(early.pools.states.free)]
    before = early.experts
    for _ in range(2):
        with pytest.raises(ArenaFull):
            finish(early)
    assert early.experts is before and early.backend == "auto"
    for state in states:
        early.pools.states.release(state)
    gone = max(early.pools.arena.held("experts"))
    early.experts.withdraw(list(early.pools.slots.slots_of(gone)))
    early.pools.slots.give_back([gone])
    finish(early)
    assert early.backend == "hybrid"
    used = np.flatnonzero(early.experts.table.offered)
    held = {s for slab in early.pools.arena.held("experts") for s in early.pools.slots.slots_of(slab)}
    assert len(used) and set(used.tolist()) <= held
    early.experts.close()


def test_who_runs_a_whole_chunk_meanwhile_has_done_the_first_forward(models_dir, gate):
    directory = models_dir / "tiny-hybrid"
    early = opened(begin, directory)
    early.coming.start()
    pages, state = early.pools.pages.alloc(2), early.pools.states.alloc()
    early.runner.zero_state(state)
    early.runner.step([Slice(0, list(range(64)), 0, pages, state)], frozenset)
    routed = sum(early.experts.hits)
    gate.set()
    finish(early)
    assert sum(early.experts.hits) == routed, "no forward of our own was needed"
    assert early.actual_bytes > 0


def test_a_forward_of_our_own_waits_for_memory(models_dir, gate):
    early = opened(begin, models_dir / "tiny-hybrid")
    early.coming.start()
    gate.set()
    held = early.pools.pages.alloc(early.pools.pages.free)
    asked: list[int] = []
    with pytest.raises(ArenaFull):
        finish(early, make_room=asked.append)
    assert asked == [-(-64 // early.pools.page_tokens)], "it asked for pages first"
    routed = sum(early.experts.hits)
    for page in held:
        early.pools.pages.release(page)
    finish(early)
    assert sum(early.experts.hits) > routed
    assert early.pools.pages.used == early.pools.states.used == 0


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_an_error_in_the_last_bank_ends_it_and_names_the_file(models_dir, tmp_path, gate, how, monkeypatch):
    directory = Path(shutil.copytree(models_dir / "tiny-hybrid", tmp_path / "tiny-hybrid"))
    bank = load_manifest(directory).banks[-1]
    file = directory / bank.file
    if how == "flipped":
        data = bytearray(file.read_bytes())
        for expert in range(bank.experts):
            data[expert * bank.stride + 5] ^= 1
        file.write_bytes(data)
    early = opened(begin, directory)
    if how == "gone":
        file.unlink()
    ended = threading.Event()
    early.coming.start(ended.set)
    with pytest.raises(WeightsError, match=bank.file):
        logits(early, [7, 300, 12], [3])
    gate.set()
    assert ended.wait(30), "whoever waits is told"
    for _ in range(2):
        with pytest.raises(WeightsError, match=bank.file):
            finish(early)
    with pytest.raises(WeightsError, match=bank.file):
        logits(early, [7, 300, 12], [3])


def test_what_is_dropped_ends_the_waiting(models_dir, gate):
    early = opened(begin, models_dir / "tiny-hybrid")
    ended = threading.Event()
    early.coming.start(ended.set)
    threading.Timer(0.2, gate.set).start()
    early.coming.close()
    assert ended.wait(30)
    with pytest.raises(WeightsError, match="not read to their end"):
        finish(early)
