"""A small bank of random experts, made for a test that says which."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import engine.kernels
from engine.device.cpu import allocate_arena
from engine.experts.bank import Bank
from engine.kernels.contract import ExpertShape
from engine.weights.ftw import aligned_buffer

Routed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(scope="session")
def make_bank() -> Callable[..., Bank]:
    def make(layers: int, experts: int, hidden: int = 64, width: int = 48, format: str = "f32", seed: int = 3) -> Bank:
        ops = engine.kernels.get("cpu")
        shape = ExpertShape(hidden, width, format)
        generator = torch.Generator().manual_seed(seed)
        made = []
        for _ in range(layers):
            layer = aligned_buffer(experts * shape.stride).view(experts, shape.stride).zero_()
            for expert in range(experts):
                for at, size in ((0, (2 * width, hidden)), (shape.down_offset, (hidden, width))):
                    data = ops.pack(torch.randn(size, generator=generator) * 0.2, format)
                    layer[expert, at : at + data.numel()] = data
            made.append(layer)
        return Bank(made, shape)

    return make


@pytest.fixture(scope="session")
def make_slots() -> Callable[[Bank, int], np.ndarray]:
    kept = []

    def make(bank: Bank, slots: int) -> np.ndarray:
        arena = allocate_arena(slots * bank.shape.stride)
        kept.append(arena)
        return arena.data_ptr() + bank.shape.stride * np.arange(slots, dtype=np.int64)

    return make


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., Routed]:
    def make(rows: int, experts: int, top_k: int, hidden: int, seed: int) -> Routed:
        random = np.random.default_rng(seed)
        ids = np.argsort(random.random((rows, experts)), axis=1)[:, :top_k].astype(np.int32)
        x = random.standard_normal((rows, hidden)).astype(np.float32)
        weights = random.random((rows, top_k)).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(ids), torch.from_numpy(weights)

    return make
