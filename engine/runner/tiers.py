"""From a plan to the executors it allows: the device, where all experts lie, and the slots."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from engine.device import choose
from engine.device.contract import Device
from engine.experts.audit import Audit, Checksum
from engine.experts.bank import Bank
from engine.experts.curves import Curve
from engine.experts.disk import DiskFetcher
from engine.experts.executor import Executor, fused, hybrid, in_place, offload
from engine.experts.profile import Profiles
from engine.experts.slots import SlotTable
from engine.experts.split import UNKNOWN, Profile, Rates
from engine.experts.tiered import Tiered
from engine.kernels.contract import ExpertShape, Ops
from engine.memory.options import Options
from engine.memory.plan import Plan
from engine.memory.pools import Pools
from engine.weights.ftw import Weights, expert_shape
from engine.weights.manifest import Bank as BankFile
from engine.weights.manifest import Manifest


@dataclass(slots=True)
class Tiers:
    """Everything executors are made of. `bank` is None when experts are read from disk; `slots` [cells of the whole arena] i64
    are addresses, of which only `leased` may be used now, and `wanted` of these are."""

    ops: Ops
    device: Device
    shape: ExpertShape
    layers: int
    experts: int
    top_k: int
    files: list[Path]
    sums: list[tuple[int, ...]]  # of the files' experts, CRC-32; empty where the manifest has none
    bank: Bank | None
    slots: npt.NDArray[np.int64]
    profile: Profile = UNKNOWN
    leased: list[int] = field(default_factory=list)  # ids in the slot pool
    wanted: int = 0

    def make(self, backend: str) -> Executor:
        """The executor of a backend that the plan has room for. Copies all experts into slots for `fused`."""
        bank, device = self.bank, self.device
        if bank is None:
            made = self._from_disk()
        elif backend == "cpu" or (backend == "fused" and not device.fast_tier):
            return in_place(self.ops, bank, device)
        elif backend == "fused":
            return fused(self.ops, bank, device, self.slots[self.leased])
        else:
            kind = hybrid if backend == "hybrid" else offload
            made = kind(self.ops, bank, device, self.slots, self.top_k, self.profile, self.leased)
        made.ask(self.wanted)
        made.curve = Curve(self.layers, self.experts)
        made.audit = Audit(made.table, self.slots, self.shape.stride, self._checksum())
        return made

    def candidates(self) -> list[str]:
        """Backends that are worth a try where the choice is left to us, the simplest first."""
        whole = ["fused"] if min(self.wanted, len(self.leased)) >= self.layers * self.experts else []
        return [*whole, "offload", "cpu", "hybrid"]

    def _from_disk(self) -> Tiered:
        table = SlotTable(self.layers, self.experts, len(self.slots))
        fetcher = DiskFetcher(self.files, self.shape.stride, self.slots, sums=self.sums)
        rates = Rates(self.profile)
        return Tiered(
            self.ops, self.shape, table, self.slots, fetcher, self.device, self.top_k, rates, leased=self.leased
        )

    def _checksum(self) -> Checksum:
        if self.bank is not None:
            return self.bank.expert_checksum
        return self._from_file

    def _from_file(self, layer: int, expert: int) -> int:
        if self.sums[layer]:
            return self.sums[layer][expert]
        with self.files[layer].open("rb") as file:
            file.seek(expert * self.shape.stride)
            return zlib.crc32(file.read(self.shape.stride))


def open_tiers(
    manifest: Manifest,
    made: Plan,
    options: Options,
    ops: Ops,
    pools: Pools,
    arena: torch.Tensor,
    weights: Weights,
    need: Callable[[int, Iterable[int]], None],
) -> Tiers:
    """Leases the plan's slots. `weights.banks` is empty when experts stay on disk; `need` as in Bank."""
    files = sorted(manifest.banks, key=lambda bank: bank.layer)
    shape = _one_shape(manifest, files)
    bank = None
    if made.bank == "ram":
        bank = Bank([weights.banks[file.layer] for file in files], shape, need)
    leased = [] if pools.slots is None else pools.slots.lease(made.expert_slabs)
    device = choose.create(made.device, options.emulate_fill_gbs, options.emulate_host_gbs)
    return Tiers(
        ops,
        device,
        shape,
        len(files),
        files[0].experts,
        manifest.geometry.top_k,
        [manifest.path(file.file) for file in files],
        [file.expert_crc32 for file in files],
        bank,
        _addresses(pools, arena),
        Profiles(options.profiles).find(shape, device) or UNKNOWN,
        leased,
        made.moe_slots,
    )


def _addresses(pools: Pools, arena: torch.Tensor) -> npt.NDArray[np.int64]:
    """Where each slot would lie if its slab were leased to experts."""
    if pools.slots is None:
        return np.empty(0, dtype=np.int64)
    cells = pools.slots.cells
    slabs, inside = np.divmod(np.arange(pools.arena.slabs * cells.per_slab, dtype=np.int64), cells.per_slab)
    addresses: npt.NDArray[np.int64] = slabs * pools.arena.slab_bytes + inside * cells.cell_bytes + arena.data_ptr()
    return addresses


def _one_shape(manifest: Manifest, files: list[BankFile]) -> ExpertShape:
    shapes = {expert_shape(manifest, file) for file in files}
    assert len(shapes) == 1, "all layers have equal experts"
    return shapes.pop()
