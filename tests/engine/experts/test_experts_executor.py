"""Executors over random banks: every backend, size and split gives the bits of computing in place."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import engine.kernels
from engine.device.cpu import CpuDevice
from engine.device.emulated import EmulatedDevice, Speeds
from engine.errors import Unsupported
from engine.experts.bank import Bank
from engine.experts.executor import fused, hybrid, in_place, offload
from engine.experts.tiered import Tiered
from engine.kernels.contract import ExpertShape
from engine.weights.ftw import aligned_buffer

LAYERS, EXPERTS, TOP_K, HIDDEN, WIDTH = 3, 8, 3, 64, 48
FAST = Speeds(fill=4e9, host=8e9)
OPS = engine.kernels.get("cpu")
relaxed = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=["f32", "bf16", "q8_0"])
def bank(request, make_bank) -> Bank:
    return make_bank(LAYERS, EXPERTS, HIDDEN, WIDTH, request.param)


def device_of(name: str):
    return CpuDevice() if name == "cpu" else EmulatedDevice(FAST)


def equal_bits(executor, bank: Bank, make_rows, steps: list[int], seed: int, before=lambda step: None) -> None:
    """Run `steps` of so many rows through every layer, and compare with computing in place."""
    plain = in_place(OPS, bank)
    for step, rows in enumerate(steps):
        before(step)
        for layer in range(LAYERS):
            x, ids, weights = make_rows(rows, EXPERTS, TOP_K, HIDDEN, seed + 100 * step + layer)
            assert torch.equal(executor.run(layer, x, ids, weights), plain.run(layer, x, ids, weights))
            if isinstance(executor, Tiered):
                executor.table.check()


sizes = st.sampled_from([LAYERS * EXPERTS, LAYERS * EXPERTS // 2, 2 * EXPERTS, TOP_K + 1, TOP_K])
rows_of_steps = st.lists(st.sampled_from([1, 1, 1, 2, 7, 64, 200]), min_size=1, max_size=8)


@relaxed
@given(st.sampled_from(["cpu", "emulated"]), sizes, st.sampled_from([None, 0.0, 0.5, 1.0]), rows_of_steps, st.data())
def test_any_split_and_size_gives_the_bits_of_computing_in_place(
    make_bank, make_slots, make_rows, device, slots, fixed, steps, data
):
    bank = make_bank(LAYERS, EXPERTS, HIDDEN, WIDTH, data.draw(st.sampled_from(["f32", "bf16", "q8_0"])))
    made = hybrid(OPS, bank, device_of(device), make_slots(bank, slots), TOP_K, fixed=fixed)
    changes = [data.draw(st.integers(TOP_K, slots)) for _ in steps]
    equal_bits(made, bank, make_rows, steps, data.draw(st.integers(0, 1000)), lambda step: made.resize(changes[step]))
    made.close()


@relaxed
@given(st.sampled_from(["cpu", "emulated"]), sizes, rows_of_steps, st.data())
def test_filling_every_miss_gives_the_bits_of_computing_in_place(
    make_bank, make_slots, make_rows, device, slots, steps, data
):
    bank = make_bank(LAYERS, EXPERTS, HIDDEN, WIDTH, data.draw(st.sampled_from(["f32", "bf16", "q8_0"])))
    made = offload(OPS, bank, device_of(device), make_slots(bank, slots), TOP_K)
    changes = [data.draw(st.integers(TOP_K, slots)) for _ in steps]
    equal_bits(made, bank, make_rows, steps, data.draw(st.integers(0, 1000)), lambda step: made.resize(changes[step]))
    made.close()


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_experts_that_are_all_in_slots_give_the_same_bits(bank, make_slots, make_rows, device):
    made = fused(OPS, bank, device_of(device), make_slots(bank, LAYERS * EXPERTS))
    equal_bits(made, bank, make_rows, [1, 17, 1, 40], 5)


def test_the_bank_stays_as_it_was(bank, make_slots, make_rows):
    sums = [bank.checksum(layer) for layer in range(LAYERS)]
    made = hybrid(OPS, bank, EmulatedDevice(FAST), make_slots(bank, 2 * EXPERTS), TOP_K)
    equal_bits(made, bank, make_rows, [40, 1, 1, 40], 7)
    made.close()
    assert [bank.checksum(layer) for layer in range(LAYERS)] == sums


def test_counters_count_copies(bank, make_slots, make_rows):
    made = offload(OPS, bank, CpuDevice(), make_slots(bank, EXPERTS * LAYERS), TOP_K)
    x, ids, weights = make_rows(30, EXPERTS, TOP_K, HIDDEN, 1)
    distinct = len(ids.unique())
    for _ in range(3):
        made.run(1, x, ids, weights)
    assert made.misses == [0, distinct, 0]
    assert made.hits == [0, 2 * distinct, 0]
    assert made.report()["filled"] == distinct
    made.close()


def test_a_split_of_half_fills_half_and_computes_half_in_place(bank, make_slots, make_rows):
    made = hybrid(OPS, bank, CpuDevice(), make_slots(bank, EXPERTS * LAYERS), 2, fixed=0.5)
    x, ids, weights = make_rows(1, EXPERTS, 2, HIDDEN, 1)
    made.run(0, x, ids, weights)
    assert (made.filled, made.in_place, made.misses[0]) == (1, 1, 2)
    made.run(0, x, ids, weights)
    assert made.hits[0] == 1
    made.close()


def test_too_few_slots_are_refused_and_a_resize_beyond_them_too(bank, make_slots):
    with pytest.raises(Unsupported, match="2 expert slots cannot hold one token's 3 experts"):
        offload(OPS, bank, CpuDevice(), make_slots(bank, TOP_K - 1), TOP_K)
    made = offload(OPS, bank, CpuDevice(), make_slots(bank, 5), TOP_K)
    for slots in (TOP_K - 1, 6):
        with pytest.raises(Unsupported, match=str(slots)):
            made.resize(slots)
    assert made.table.slots == 5
    made.close()


def test_writing_into_a_sealed_bank_ends_the_process():
    script = f"""
import torch
from engine.experts.bank import Bank
from engine.kernels.contract import ExpertShape
from engine.weights.ftw import aligned_buffer
shape = ExpertShape({HIDDEN}, {WIDTH}, "f32")
stride = shape.stride
layer = aligned_buffer(4 * stride).view(4, stride).zero_()
bank = Bank([layer], shape)
bank.seal()
print(bank.checksum(0), flush=True)
layer[2, 5] = 1
print("written", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode < 0
    assert done.stdout.count("\n") == 1


def test_a_sealed_bank_can_be_freed_and_its_memory_used_again():
    shape = ExpertShape(HIDDEN, WIDTH, "f32")
    layer = aligned_buffer(2 * shape.stride).view(2, shape.stride).zero_()
    bank = Bank([layer], shape)
    bank.seal()
    del bank
    layer[0, 0] = 1
    assert layer[0, 0] == 1


def test_slots_outside_the_offered_ones_are_never_written(bank, make_slots, make_rows):
    made = offload(OPS, bank, CpuDevice(), make_slots(bank, 2 * EXPERTS), TOP_K)
    made.resize(TOP_K + 1)
    equal_bits(made, bank, make_rows, [1, 40, 1], 9)
    assert (made.table.holder[TOP_K + 1 :] == -1).all()
    assert np.count_nonzero(made.table.holder >= 0) == TOP_K + 1
    made.close()
