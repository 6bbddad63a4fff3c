"""A model that runs while its experts are still being read: the same bits, what cannot be read ends it, and what comes at the end."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import torch

from engine.device import choose, emulated
from engine.device.clock import ModelClock
from engine.errors import WeightsError
from engine.memory.arena import ArenaFull
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, begin, finish, load
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


def logits(loaded: Loaded, tokens: list[int], chunks: list[int]) -> torch.Tensor:
    pools = loaded.pools
    pages, state = pools.pages.alloc(-(-len(tokens) // pools.page_tokens)), pools.states.alloc()
    loaded.runner.zero_state(state)
    rows, done = [], 0
    for n in chunks:
        ids, batch = loaded.runner.batches.build([Slice(0, tokens[done : done + n], done, pages, state)])
        with torch.inference_mode():
            rows.append(loaded.runner.model.forward(ids, batch, torch.arange(n), list))
        done += n
    for page in pages:
        pools.pages.release(page)
    pools.states.release(state)
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
