"""Serving routed experts: where they lie, or through fast-tier slots. The same bits either way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.device.contract import Device
from engine.device.cpu import CpuDevice
from engine.experts.bank import Bank
from engine.experts.copy import CopyFetcher
from engine.experts.record import Recorder
from engine.experts.slots import SlotTable
from engine.experts.split import UNKNOWN, Profile, Rates, Split
from engine.experts.tiered import Tiered
from engine.experts.watch import Watch
from engine.kernels.contract import ExpertShape, Ops

Slots = npt.NDArray[np.int64]


class Executor(Protocol):
    """What a MoE layer calls (see layers.moe.Experts), with counters per layer: experts found in the fast tier, or not.

    Where experts are computed in place, every distinct routed expert is a hit. `record` is told every step's routing,
    `watch` how long a layer of one row took.
    """

    hits: list[int]
    misses: list[int]
    record: Recorder | None
    watch: Watch

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See layers.moe.Experts."""

    def report(self) -> dict[str, Any]:
        """Plain data for statistics."""

    def close(self) -> None:
        """End threads."""


class Resident:
    """Every expert is computed where it always lies. `addresses[layer]` is [experts] i64.

    `bank`: they lie in host memory, read beside the device; None: in the device's own.
    """

    def __init__(
        self, ops: Ops, shape: ExpertShape, addresses: Sequence[torch.Tensor], device: Device, bank: Bank | None = None
    ) -> None:
        self._ops, self._shape, self._addresses = ops, shape, addresses
        self._device, self._bank = device, bank
        self.hits, self.misses = [0] * len(addresses), [0] * len(addresses)
        self.record: Recorder | None = None
        self.watch = Watch()

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Executor."""
        start = self._device.clock.now()
        if self.record is not None:
            self.record.note(layer, ids.numpy())
        distinct = ids.numpy().ravel() if ids.shape[0] == 1 else np.unique(ids.numpy())
        experts = len(distinct)
        self.hits[layer] += experts
        if self._bank is not None:
            self._bank.need(layer, distinct)
        if not self._device.fast_tier:
            out = self._ops.experts(x, ids, weights, self._addresses[layer], self._shape)
        elif self._bank is not None:
            work = self._device.in_place(experts * self._shape.stride, ids.numel())
            out = self._ops.experts(x, ids, weights, self._addresses[layer], self._shape)
            work.computed()
            work.wait()
        else:
            self._device.computes(experts)
            out = self._ops.experts(x, ids, weights, self._addresses[layer], self._shape)
            self._device.synchronize()
        if len(x) == 1:
            self.watch.saw(self._device.clock.now() - start)
        return out

    def report(self) -> dict[str, Any]:
        """See Executor."""
        return {}

    def close(self) -> None:
        """See Executor."""


def in_place(ops: Ops, bank: Bank, device: Device | None = None) -> Resident:
    """Experts are computed in the bank."""
    return Resident(ops, bank.shape, bank.addresses, device or CpuDevice(), bank)


def fused(ops: Ops, bank: Bank, device: Device, slots: Slots) -> Resident:
    """All experts are copied into the device's slots first, one slot for each, layer by layer."""
    fetcher = CopyFetcher(bank, slots, device)
    try:
        for layer in range(len(bank.layers)):
            first = layer * bank.experts
            fetcher.start(layer, range(bank.experts), range(first, first + bank.experts)).wait_all()
    finally:
        fetcher.close()
    lie = torch.from_numpy(slots[: len(bank.layers) * bank.experts]).view(len(bank.layers), bank.experts)
    return Resident(ops, bank.shape, list(lie), device)


def offload(
    ops: Ops,
    bank: Bank,
    device: Device,
    slots: Slots,
    top_k: int,
    profile: Profile = UNKNOWN,
    leased: Sequence[int] | None = None,
) -> Tiered:
    """Every miss is copied from the bank into a slot; `leased` as in Tiered."""
    table = SlotTable(len(bank.layers), bank.experts, len(slots))
    fetcher = CopyFetcher(bank, slots, device)
    return Tiered(ops, bank.shape, table, slots, fetcher, device, top_k, Rates(profile), leased=leased)


def hybrid(
    ops: Ops,
    bank: Bank,
    device: Device,
    slots: Slots,
    top_k: int,
    profile: Profile = UNKNOWN,
    leased: Sequence[int] | None = None,
    fixed: float | None = None,
) -> Tiered:
    """Some misses are copied, the others computed in the bank; `fixed` sets their share by hand, 0..1; `leased` as in Tiered."""
    rates = Rates(profile)
    return Tiered(
        ops,
        bank.shape,
        SlotTable(len(bank.layers), bank.experts, len(slots)),
        slots,
        CopyFetcher(bank, slots, device),
        device,
        top_k,
        rates,
        Split(rates, bank.shape.stride, fixed),
        bank,
        leased,
    )
