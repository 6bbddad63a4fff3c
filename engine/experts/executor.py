"""Serving routed experts: computed in place in the bank, or filled into fast-tier slots first. The same bits either way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from engine.errors import Unsupported
from engine.experts.bank import Bank
from engine.experts.slots import SlotTable
from engine.experts.waves import waves
from engine.kernels.contract import Ops

BACKENDS = ("auto", "cpu", "offload", "fused", "hybrid")


class Executor(Protocol):
    """What a MoE layer calls (see layers.moe.Experts), with counters per layer: experts found in the fast tier, or not.

    Where experts are computed in place, every distinct routed expert is a hit.
    """

    hits: list[int]
    misses: list[int]

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor: ...


class InPlace:
    """Every expert is computed where it lies in the bank."""

    def __init__(self, ops: Ops, bank: Bank) -> None:
        self._ops, self._bank = ops, bank
        self.hits = [0] * len(bank.layers)
        self.misses = [0] * len(bank.layers)

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Executor."""
        bank = self._bank
        self.hits[layer] += ids.shape[1] if ids.shape[0] == 1 else len(np.unique(ids.numpy()))
        return self._ops.experts(x, ids, weights, bank.addresses[layer], bank.shape)


class Offload:
    """Misses are copied into slots, then everything is computed in slots.

    `offsets` are the slots' byte offsets in `arena`. A step that routes to more experts than there are slots runs in
    waves of rows. Raises Unsupported when not even one row's experts fit.
    """

    def __init__(self, ops: Ops, bank: Bank, arena: torch.Tensor, offsets: Sequence[int], top_k: int) -> None:
        if len(offsets) < top_k:
            raise Unsupported(f"{len(offsets)} expert slots cannot hold one token's {top_k} experts.")
        self._ops, self._bank = ops, bank
        self.table = SlotTable(len(bank.layers), bank.experts, len(offsets))
        self._slots = [arena[offset : offset + bank.expert_bytes] for offset in offsets]
        self._slot_address = np.array([slot.data_ptr() for slot in self._slots], dtype=np.int64)
        self._addresses = torch.zeros(bank.experts, dtype=torch.int64)
        self.hits = [0] * len(bank.layers)
        self.misses = [0] * len(bank.layers)

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Executor."""
        routed = ids.numpy()
        if len(np.unique(routed)) <= self.table.slots:
            return self._wave(layer, x, ids, weights)
        out = torch.empty_like(x)
        for rows in (torch.from_numpy(wave) for wave in waves(routed, self.table.slots)):
            out[rows] = self._wave(layer, x[rows], ids[rows], weights[rows])
        return out

    def _wave(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        bank = self._bank
        admission = self.table.admit(layer, ids.numpy().astype(np.int64))
        for expert, slot in zip(
            admission.experts[admission.fills].tolist(), admission.slots[admission.fills].tolist(), strict=True
        ):
            self._slots[slot].copy_(bank.layers[layer][expert])
        self.misses[layer] += admission.misses
        self.hits[layer] += len(admission.experts) - admission.misses
        self._addresses.numpy()[admission.experts] = self._slot_address[admission.slots]
        return self._ops.experts(x, ids, weights, self._addresses, bank.shape)


def resolve(backend: str) -> str:
    """The backend that runs for the one asked for, on a CPU device. Raises Unsupported.

    `auto` is in-place compute: a bank in RAM has no faster tier above it.
    """
    if backend in ("auto", "cpu"):
        return "cpu"
    if backend == "offload":
        return backend
    if backend in ("fused", "hybrid"):
        raise Unsupported(f"The expert backend '{backend}' needs a GPU.", "Use --moe-backend cpu.")
    raise Unsupported(f"There is no expert backend '{backend}'.", f"Use one of {', '.join(BACKENDS)}.")


def create(
    backend: str, ops: Ops, bank: Bank, arena: torch.Tensor, slot_offsets: Sequence[int], top_k: int
) -> Executor:
    """The executor of a resolved backend; `slot_offsets` matter to `offload` only. Raises Unsupported."""
    if resolve(backend) == "offload":
        return Offload(ops, bank, arena, slot_offsets, top_k)
    return InPlace(ops, bank)
