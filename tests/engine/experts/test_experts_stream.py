"""Prefill streaming in modelled time: when it pays, what it hides, and what it leaves in the slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import engine.kernels
from engine.device.clock import ModelClock
from engine.device.emulated import EmulatedDevice, Speeds
from engine.experts.executor import in_place, offload
from engine.experts.split import Profile

LAYERS, EXPERTS, TOP_K, HIDDEN = 4, 16, 2, 64
OPS = engine.kernels.get("cpu")


@pytest.fixture(scope="module")
def bank(make_bank):
    return make_bank(LAYERS, EXPERTS, HIDDEN, 32)


@pytest.fixture
def made(bank, make_slots):
    """An executor with slots for two layers and a few experts more, whose layers compute in a quarter of their fill time."""
    fill = bank.shape.stride / 1e-3
    device = EmulatedDevice(Speeds(fill, 2 * fill, expert_s=0.25e-3), ModelClock())
    tiered = offload(OPS, bank, device, make_slots(bank, 2 * EXPERTS + 8), TOP_K, Profile(fill, 2 * fill))
    yield tiered
    tiered.close()


def chunk(tiered, bank, make_rows, rows: int, seed: int) -> float:
    """Seconds of one forward's experts, checked for their bits."""
    clock, plain = tiered.device.clock, in_place(OPS, bank)
    start = clock.now()
    for layer in range(LAYERS):
        x, ids, weights = make_rows(rows, EXPERTS, TOP_K, HIDDEN, seed + layer)
        assert torch.equal(tiered.run(layer, x, ids, weights), plain.run(layer, x, ids, weights))
        tiered.table.check()
    return clock.now() - start


def test_a_long_chunk_takes_as_long_as_its_bytes(made, bank, make_rows):
    chunk(made, bank, make_rows, 128, 1)
    before = made.filled * made.fetcher.bytes_per_expert + made.stream.bytes
    seconds = chunk(made, bank, make_rows, 128, 2)
    moved = made.filled * made.fetcher.bytes_per_expert + made.stream.bytes - before
    assert made.stream.bytes > 0
    assert moved <= (LAYERS * EXPERTS - 8) * bank.shape.stride, "what slots hold is not streamed again"
    assert seconds <= 1.1 * moved / made.device.speeds.fill


def test_a_short_suffix_fetches_only_what_it_routes_to(made, bank, make_rows):
    chunk(made, bank, make_rows, 2, 1)
    chunk(made, bank, make_rows, 2, 5)
    assert made.stream.bytes == 0
    assert made.filled <= 2 * LAYERS * 2 * TOP_K
    chunk(made, bank, make_rows, 1, 9)
    assert made.stream.bytes == 0


def test_with_few_slots_nothing_is_streamed(bank, make_slots, make_rows):
    device = EmulatedDevice(Speeds(1e9, 2e9, expert_s=1e-3), ModelClock())
    tiered = offload(OPS, bank, device, make_slots(bank, 2 * EXPERTS - 1), TOP_K)
    chunk(tiered, bank, make_rows, 128, 1)
    chunk(tiered, bank, make_rows, 128, 1)
    assert tiered.stream.bytes == 0
    tiered.close()


def test_an_abandoned_forward_leaves_nothing_pinned(made, bank, make_rows):
    chunk(made, bank, make_rows, 128, 1)
    for layer in range(2):
        x, ids, weights = make_rows(128, EXPERTS, TOP_K, HIDDEN, layer)
        made.run(layer, x, ids, weights)
    assert made.table.pinned.any(), "the next layers are on their way"
    chunk(made, bank, make_rows, 1, 3)
    assert not made.table.pinned.any()
    made.resize(TOP_K)
    chunk(made, bank, make_rows, 1, 4)


def test_after_a_prompt_the_slots_hold_what_its_rows_used(made, bank, make_rows):
    favourites = np.array([3, 9], dtype=np.int32)
    for layer in range(LAYERS):
        x, ids, weights = make_rows(128, EXPERTS, TOP_K, HIDDEN, layer)
        ids.numpy()[32:] = favourites
        made.run(layer, x, ids, weights)
    made.stream.finish()
    assert (made.table.slot_of[:, favourites] >= 0).all()
    before = sum(made.misses)
    for layer in range(LAYERS):
        x, _, weights = make_rows(1, EXPERTS, TOP_K, HIDDEN, layer)
        made.run(layer, x, torch.from_numpy(favourites[None]), weights)
    assert sum(made.misses) == before


def test_the_second_buffer_can_be_switched_off(made, bank, make_rows):
    made.stream.double = False
    chunk(made, bank, make_rows, 128, 1)
    chunk(made, bank, make_rows, 128, 2)
    assert made.stream.bytes == 0


class Failing:
    """A fetcher whose fills that are not urgent never arrive."""

    def __init__(self, fetcher) -> None:
        self.bytes_per_expert, self._fetcher = fetcher.bytes_per_expert, fetcher

    def start(self, layer, experts, slots, ahead=False):
        ticket = self._fetcher.start(layer, experts, slots)
        if ahead:
            ticket.wait_all = self._fail
        return ticket

    def _fail(self) -> None:
        raise OSError("the disk is gone")


def test_what_did_not_arrive_is_not_taken_for_resident(made, bank, make_rows):
    chunk(made, bank, make_rows, 128, 1)
    made.stream._fetcher = Failing(made.fetcher)
    with pytest.raises(OSError, match="the disk is gone"):
        chunk(made, bank, make_rows, 128, 2)
    made.table.check()
    made.stream._fetcher = made.fetcher
    while made.table.pinned.any():
        try:
            made.stream.finish()
        except OSError:
            made.table.check()
    chunk(made, bank, make_rows, 128, 2)
