"""Executors over a small bank: every backend gives the bits of computing in place, and the bank stays as it was."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import engine.kernels
from engine.device.cpu import allocate_arena
from engine.errors import Unsupported
from engine.experts.bank import Bank
from engine.experts.executor import InPlace, Offload, create, resolve
from engine.kernels.contract import ExpertShape
from engine.memory.arena import Arena
from engine.memory.pools import SlotPool
from engine.weights.ftw import aligned_buffer

HIDDEN, WIDTH, EXPERTS, LAYERS, TOP_K = 64, 48, 8, 2, 3


@pytest.fixture(scope="module", params=["f32", "bf16", "q8_0"])
def bank(request) -> Bank:
    ops = engine.kernels.get("cpu")
    shape = ExpertShape(HIDDEN, WIDTH, request.param)
    down_at, stride = shape.down_offset, shape.stride
    generator = torch.Generator().manual_seed(3)
    layers = []
    for _ in range(LAYERS):
        layer = aligned_buffer(EXPERTS * stride).view(EXPERTS, stride).zero_()
        for expert in range(EXPERTS):
            for at, shape in ((0, (2 * WIDTH, HIDDEN)), (down_at, (HIDDEN, WIDTH))):
                data = ops.pack(torch.randn(shape, generator=generator) * 0.2, request.param)
                layer[expert, at : at + data.numel()] = data
        layers.append(layer)
    return Bank(layers, HIDDEN, WIDTH, request.param)


def routed(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    ids = np.stack([random.permutation(EXPERTS)[:TOP_K] for _ in range(rows)]).astype(np.int32)
    x = random.standard_normal((rows, HIDDEN)).astype(np.float32)
    weights = random.random((rows, TOP_K)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(ids), torch.from_numpy(weights)


def offload(bank: Bank, slots: int) -> Offload:
    arena = Arena(bank.expert_bytes * 2, slots)
    pool = SlotPool(arena, bank.expert_bytes)
    memory = allocate_arena(arena.bytes)
    offsets = [pool.offset(slot) for slot in pool.alloc(slots)]
    made = create("offload", engine.kernels.get("cpu"), bank, memory, offsets, TOP_K)
    assert isinstance(made, Offload)
    return made


@pytest.mark.parametrize("slots", [TOP_K, TOP_K + 1, EXPERTS, EXPERTS * LAYERS])
def test_slots_of_any_number_give_the_bits_of_computing_in_place(bank, slots):
    in_place = InPlace(engine.kernels.get("cpu"), bank)
    offloaded = offload(bank, slots)
    sums = [bank.checksum(layer) for layer in range(LAYERS)]
    for seed, rows in enumerate([1, 17, 1, 2, 40, 1]):
        for layer in range(LAYERS):
            x, ids, weights = routed(rows, 10 * seed + layer)
            assert torch.equal(offloaded.run(layer, x, ids, weights), in_place.run(layer, x, ids, weights))
            offloaded.table.check()
    assert [bank.checksum(layer) for layer in range(LAYERS)] == sums


def test_counters_count_copies(bank):
    offloaded = offload(bank, EXPERTS * LAYERS)
    x, ids, weights = routed(30, 1)
    distinct = len(ids.unique())
    for _ in range(3):
        offloaded.run(1, x, ids, weights)
    assert offloaded.misses == [0, distinct]
    assert offloaded.hits == [0, 2 * distinct]


def test_too_few_slots_and_gpu_backends_are_refused(bank):
    with pytest.raises(Unsupported, match="2 expert slots cannot hold one token's 3 experts"):
        offload(bank, TOP_K - 1)
    for backend in ("fused", "hybrid", "magic"):
        with pytest.raises(Unsupported, match=backend):
            resolve(backend)
    assert resolve("auto") == resolve("cpu") == "cpu"


def test_writing_into_a_sealed_bank_ends_the_process():
    script = f"""
import torch
from engine.experts.bank import Bank
from engine.kernels.contract import ExpertShape
from engine.weights.ftw import aligned_buffer
stride = ExpertShape({HIDDEN}, {WIDTH}, "f32").stride
layer = aligned_buffer(4 * stride).view(4, stride).zero_()
bank = Bank([layer], {HIDDEN}, {WIDTH}, "f32")
bank.seal()
print(bank.checksum(0), flush=True)
layer[2, 5] = 1
print("written", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode < 0
    assert done.stdout.count("\n") == 1


def test_a_sealed_bank_can_be_freed_and_its_memory_used_again():
    stride = ExpertShape(HIDDEN, WIDTH, "f32").stride
    layer = aligned_buffer(2 * stride).view(2, stride).zero_()
    bank = Bank([layer], HIDDEN, WIDTH, "f32")
    bank.seal()
    del bank
    layer[0, 0] = 1
    assert layer[0, 0] == 1
