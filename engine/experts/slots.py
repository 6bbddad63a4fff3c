"""The fast tier's slot table: which (layer, expert) lies in which slot. Bookkeeping only; the executor copies.

One table over all layers, least recently used goes first. This numpy version is the reference for any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Admission:
    """What one MoE layer of one step needs: `experts` are distinct, `slots` where each will lie, and `fills` says which of
    them must be copied there first."""

    experts: Ids
    slots: Ids
    fills: npt.NDArray[np.bool_]

    @property
    def misses(self) -> int:
        return int(self.fills.sum())


class SlotTable:
    """`slots` places shared by `layers` * `experts` experts.

    `slot_of` [layers, experts] is a slot or -1; `holder` [slots] is layer * experts + expert or -1; `stamp` [slots] is the
    admission that last used the slot.
    """

    def __init__(self, layers: int, experts: int, slots: int) -> None:
        self.slot_of: Ids = np.full((layers, experts), -1, dtype=np.int64)
        self.holder: Ids = np.full(slots, -1, dtype=np.int64)
        self.stamp: Ids = np.zeros(slots, dtype=np.int64)
        self._clock = 0

    @property
    def slots(self) -> int:
        return len(self.holder)

    def admit(self, layer: int, routed: Ids) -> Admission:
        """Give every distinct expert among `routed` a slot; mutates the table as if the fills had been made.

        Slots used by this admission are never its victims. Raises ValueError when more are needed than exist.
        """
        experts = np.unique(routed)
        if len(experts) > self.slots:
            raise ValueError(f"{len(experts)} experts routed at once, {self.slots} slots")
        self._clock += 1
        placed = self.slot_of[layer, experts]
        fills = placed < 0
        self.stamp[placed[~fills]] = self._clock
        misses = experts[fills]
        if len(misses):
            victims = self._least_recent(len(misses))
            evicted = self.holder[victims]
            self.slot_of.reshape(-1)[evicted[evicted >= 0]] = -1
            self.holder[victims] = layer * self.slot_of.shape[1] + misses
            self.slot_of[layer, misses] = victims
            self.stamp[victims] = self._clock
            placed[fills] = victims
        return Admission(experts, placed, fills)

    def _least_recent(self, n: int) -> Ids:
        """The n slots with the oldest stamps, lower slots first among equals; never one stamped by this admission."""
        return np.sort(np.argsort(self.stamp, kind="stable")[:n])

    def check(self) -> None:
        """Raises AssertionError unless both directions of the table agree."""
        held = np.flatnonzero(self.holder >= 0)
        assert (self.slot_of.reshape(-1)[self.holder[held]] == held).all(), "a slot's holder lies elsewhere"
        assert (self.slot_of >= 0).sum() == len(held), "an expert claims a slot it does not hold"
