"""Experts through fast-tier slots: misses are filled, or, where the bank lies in memory, partly computed in place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.device.contract import Device
from engine.errors import Unsupported
from engine.experts.audit import Audit
from engine.experts.bank import Bank
from engine.experts.curves import Curve
from engine.experts.fetch import Fetcher, Ticket
from engine.experts.record import Recorder
from engine.experts.slots import Admission, SlotTable
from engine.experts.split import Rates, Split
from engine.experts.stream import Stream
from engine.experts.tenancy import Tenancy
from engine.experts.watch import Watch
from engine.experts.waves import waves
from engine.kernels.contract import ExpertShape, Ops

GROUPS = 4  # of fills, each computed when it has arrived


class Tiered:
    """See Executor. `slots` [capacity] i64 are slot addresses; the fetcher reads the same ones. `leased` are those that may be
    used; None: all. Others may be offered and withdrawn between two steps, wherever they lie.

    `split` None: every miss is filled, and a step that routes to more experts than there are slots runs in waves of rows.
    With a split, `bank` says where the others are computed. Raises Unsupported when not even one row's experts fit.
    """

    def __init__(
        self,
        ops: Ops,
        shape: ExpertShape,
        table: SlotTable,
        slots: npt.NDArray[np.int64],
        fetcher: Fetcher,
        device: Device,
        top_k: int,
        rates: Rates,
        split: Split | None = None,
        bank: Bank | None = None,
        leased: Sequence[int] | None = None,
    ) -> None:
        assert split is None or bank is not None, "a split needs experts to compute in place"
        layers, experts = table.slot_of.shape
        self.table, self.rates, self.split, self.fetcher = table, rates, split, fetcher
        self.stream = Stream(table, fetcher, rates, device.clock)
        self._ops, self._shape, self._slots, self.device, self._bank = ops, shape, slots, device, bank
        self._top_k = top_k
        self._addresses = torch.zeros(experts, dtype=torch.int64)
        self._parts = torch.empty(0)
        self._reused = np.ones(len(slots), dtype=np.bool_)  # what each slot holds was used again since it was filled
        self.hits, self.misses = [0] * layers, [0] * layers
        self.filled = self.in_place = 0
        self.record: Recorder | None = None
        self.curve: Curve | None = None
        self.watch = Watch()
        self.audit: Audit | None = None
        self.least, self.most = top_k, layers * experts
        self._tenancy = Tenancy(table, top_k, leased)
        self._require(table.slots)

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Executor."""
        start = self.device.clock.now()
        routed, rows = ids.numpy(), x.shape[0]
        if self.record is not None:
            self.record.note(layer, routed)
        if self.curve is not None:
            self.curve.note(layer, routed)
        self.stream.arrive(layer, rows)
        if self.split is not None or routed.size <= self.table.slots or len(np.unique(routed)) <= self.table.slots:
            out = self._step(layer, x, ids, weights)
            if rows == 1:
                self.watch.saw(self.device.clock.now() - start)
            return out
        out = torch.empty_like(x)
        for part in (torch.from_numpy(wave) for wave in waves(routed, self.table.slots)):
            out[part] = self._step(layer, x[part], ids[part], weights[part])
        return out

    @property
    def miss_s(self) -> float:
        """What filling one expert takes, as far as is known."""
        return self.fetcher.bytes_per_expert / self.rates.fill.value

    @property
    def resident(self) -> int:
        """Experts that lie in slots."""
        return int(np.count_nonzero(self.table.holder >= 0))

    def picture(self) -> list[dict[str, Any]]:
        """By layer: hits, misses; `use` of each expert of late in percent of the most used one's, -1: never used; `in_slot` as 0
        and 1, one character for each."""
        worth, table = self.table.uses, self.table
        dearest = float(worth.max(initial=-np.inf))
        use = np.full(worth.shape, -1)
        seen = np.isfinite(worth)
        use[seen] = np.rint(100 * np.exp2(worth[seen] - dearest))
        return [
            {
                "layer": layer,
                "hits": self.hits[layer],
                "misses": self.misses[layer],
                "use": use[layer].tolist(),
                "in_slot": "".join("1" if slot >= 0 else "0" for slot in table.slot_of[layer].tolist()),
            }
            for layer in range(len(use))
        ]

    def resize(self, slots: int) -> None:
        """Use `slots` of the leased slots from the next step on; what the others held is forgotten. Call between steps.

        Raises Unsupported when a token's experts would not fit, or there are not so many, and ExpertsDamaged when an
        expert that is still in a slot has changed.
        """
        self._require(slots)
        self.ask(slots)
        self.verify()

    def ask(self, slots: int | None) -> None:
        """Use at most so many of the leased slots, now and after any change of them; None: all."""
        self.stream.finish()
        self._tenancy.ask(slots)

    def offer(self, slots: Sequence[int]) -> None:
        """These slots are leased from now on, and empty. Call between steps."""
        self._tenancy.add(slots)

    def withdraw(self, slots: Sequence[int]) -> int:
        """These slots are no longer leased. Returns how many experts lay in them. Call between steps. Raises Unsupported when
        the others could not hold a token's experts."""
        self._require(self._tenancy.leased - len(slots))
        self.stream.finish()
        return self._tenancy.remove(slots)

    def worth(self, groups: Sequence[Sequence[int]]) -> list[float]:
        """What the experts in each group of slots are worth to the policy together, in units of the dearest one; 0 when they
        are empty. All groups have the same length."""
        return self._tenancy.worth(groups)

    def verify(self) -> None:
        """Compare one expert in a slot with its source. Raises ExpertsDamaged."""
        if self.audit is not None:
            self.audit.check()

    def report(self) -> dict[str, Any]:
        """See Executor."""
        return {
            "slots": self.table.slots,
            "filled": self.filled,
            "in_place": self.in_place,
            "streamed_bytes": self.stream.bytes,
            "fill_share": 1.0 if self.split is None else round(self.split.share, 4),
            "rates": self.rates.report(),
            **self.fetcher.report(),
        }

    def close(self) -> None:
        """See Executor."""
        self.fetcher.close()

    def _require(self, slots: int) -> None:
        room = self._tenancy.leased
        if not self._top_k <= slots <= room:
            raise Unsupported(
                f"{slots} expert slots cannot hold one token's {self._top_k} experts."
                if slots < self._top_k
                else f"There is room for {room} expert slots, not for {slots}."
            )

    def _step(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        routed = ids.numpy()
        allowed = None if self.split is None else self._fills_allowed(self.split, layer, routed)
        admitted = self.table.admit(layer, routed, allowed)
        filled, misses = int(np.count_nonzero(admitted.fills)), admitted.misses
        self.misses[layer] += misses
        self.hits[layer] += len(admitted.experts) - misses
        self.filled += filled
        self.in_place += misses - filled
        fills = admitted.fills
        if self.split is not None:
            self._note_reuse(self.split, admitted)
        ticket = self.fetcher.start(layer, admitted.experts[fills].tolist(), admitted.slots[fills].tolist())
        try:
            return self._serve(layer, x, ids, weights, admitted, ticket)
        except BaseException:
            with suppress(Exception):
                ticket.wait_all()  # nothing may write into slots that are given away again
            self.table.drop(admitted.slots[fills])
            raise

    def _serve(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        admitted: Admission,
        ticket: Ticket,
    ) -> torch.Tensor:
        distinct, share = len(admitted.experts), 1.0
        if self.split is not None and len(x) > 1:
            share = self.split.wanted(distinct, ids.numel() / distinct, 0) / distinct
        streaming = self.stream.pays(layer, len(x), distinct, share)
        if streaming:
            self.stream.ahead(layer)
        if admitted.misses:
            out = self._branches(layer, x, ids, weights, admitted, ticket)
        else:
            start = self.device.clock.now()
            self.device.computes(len(admitted.experts))
            at = self._at(admitted.experts, self._slots[admitted.slots])
            out = self._ops.experts(x, ids, weights, at, self._shape)
            self.rates.computed(len(admitted.experts), self.device.synchronize() - start)
        if streaming:
            self.stream.ahead(layer, free=True)
        return out

    def _branches(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        admitted: Admission,
        ticket: Ticket,
    ) -> torch.Tensor:
        """The device computes what is in slots while the others are filled or computed in place."""
        parts, device, shape = self._scratch(ids), self.device, self._shape
        experts, slots, fills = admitted.experts, admitted.slots, admitted.fills
        stay = slots < 0
        hit = ~(fills | stay)
        hits, filled, here = experts[hit], experts[fills], experts[stay]
        if len(hits):
            device.computes(len(hits))
            self._ops.expert_outputs(x, ids, self._at(hits, self._slots[slots[hit]]), shape, parts)
        work = None
        if len(here) and self._bank is not None:
            self._bank.need(layer, here.tolist())
            rows = int(admitted.rows[stay].sum())
            work = device.in_place(len(here) * shape.stride, rows)
            lie = self._bank.addresses[layer].numpy()[here]
            self._ops.expert_outputs(x, ids, self._at(here, lie), shape, parts)
            work.computed()
        fill_span = None
        if len(filled):
            slots = self._slots[slots[fills]]
            size = -(-len(filled) // GROUPS)
            for i in range(0, len(filled), size):  # the device computes some while the next are on their way
                group = slice(i, min(i + size, len(filled)))
                self._wait(ticket, group.stop - 1)
                device.computes(group.stop - i)
                self._ops.expert_outputs(x, ids, self._at(filled[group], slots[group]), shape, parts)
            fill_span = self._arrived(ticket, len(filled))
        device.synchronize()
        if work is not None:
            self.rates.in_place(len(here) * shape.stride, work.wait(), rows / len(here), fill_span)
        return self._ops.combine(parts, weights)

    def _fills_allowed(self, split: Split, layer: int, routed: npt.NDArray[np.int32]) -> int:
        experts, rows = np.unique(routed, return_counts=True)
        missing = self.table.slot_of[layer, experts] < 0
        misses = int(np.count_nonzero(missing))
        hits = len(experts) - misses
        room = self.table.slots - hits - int(np.count_nonzero(self.table.pinned))
        return min(split.choose(misses, rows[missing].tolist(), hits), max(0, room))

    def _note_reuse(self, split: Split, admitted: Admission) -> None:
        filled = admitted.slots[admitted.fills]
        if len(filled):
            split.replaced(self._reused[filled])
        self._reused[admitted.slots[admitted.slots >= 0]] = True
        self._reused[filled] = False

    def _wait(self, ticket: Ticket, i: int) -> None:
        start = self.device.clock.now()
        ticket.wait(i)
        self.stream.blocked += self.device.clock.now() - start

    def _arrived(self, ticket: Ticket, fills: int) -> tuple[float, float]:
        start = self.device.clock.now()
        ticket.wait_all()
        self.stream.blocked += self.device.clock.now() - start
        span = ticket.span()
        self.rates.filled(fills * self._shape.stride, span)
        return span

    def _at(self, experts: npt.NDArray[np.int64], addresses: npt.NDArray[np.int64]) -> torch.Tensor:
        """[E] addresses: the given experts', 0 for all others. Valid until the next call."""
        self._addresses.zero_()
        self._addresses.numpy()[experts] = addresses
        return self._addresses

    def _scratch(self, ids: torch.Tensor) -> torch.Tensor:
        """[M, top_k, hidden] fp32, undefined content. Valid until the next call."""
        size = ids.numel() * self._shape.hidden
        if self._parts.numel() < size:
            self._parts = torch.empty(size)
        return self._parts[:size].view(*ids.shape, self._shape.hidden)
