"""The fast tier's slot table: which (layer, expert) lies in which slot. Bookkeeping only; the executor copies.

One table over all layers. Every slot has a priority, and the lowest goes first; who sets priorities is the policy. This
numpy version is the reference for any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Admission:
    """What one MoE layer of one step needs: `experts` are distinct and ascending, `rows` says how many rows routed to each,
    `slots` where each will lie, and `fills` which of them must be copied there first. A slot of -1: not admitted, to be
    computed in place."""

    experts: Ids
    rows: Ids
    slots: Ids
    fills: npt.NDArray[np.bool_]

    @property
    def misses(self) -> int:
        """Experts that were not in a slot, whether filled or computed in place."""
        return int(self.fills.sum()) + int((self.slots < 0).sum())


class SlotTable:
    """At most `slots` places shared by `layers` * `experts` experts; `slots` says how many are on offer.

    `slot_of` [layers, experts] is a slot or -1; `holder` [slots] is layer * experts + expert or -1; `stamp` [slots] is the
    admission that last used the slot.
    """

    def __init__(self, layers: int, experts: int, slots: int) -> None:
        self.slot_of: Ids = np.full((layers, experts), -1, dtype=np.int64)
        self.holder: Ids = np.full(slots, -1, dtype=np.int64)
        self.stamp: Ids = np.zeros(slots, dtype=np.int64)
        self.pinned: npt.NDArray[np.bool_] = np.zeros(slots, dtype=np.bool_)  # never victims: bytes are on their way
        self.offered: npt.NDArray[np.bool_] = np.ones(slots, dtype=np.bool_)  # leased to experts now
        self.slots = slots
        self._clock = 0

    def admit(self, layer: int, routed: npt.NDArray[np.integer], fills_allowed: int | None = None) -> Admission:
        """Give the distinct experts among `routed` slots; mutates the table as if the fills had been made.

        Slots used by this admission are never its victims. With `fills_allowed`, at most so many misses are given one:
        those with the most rows, then those worth most to the policy. Raises ValueError when more slots are needed
        than exist.
        """
        experts, rows = np.unique(routed, return_counts=True)
        experts = experts.astype(np.int64)
        placed = self.slot_of[layer, experts]
        missing = np.flatnonzero(placed < 0)
        fills = np.zeros(len(experts), dtype=np.bool_)
        if fills_allowed is not None and fills_allowed < len(missing):
            missing = np.sort(missing[np.argsort(-rows[missing], kind="stable")[: max(0, fills_allowed)]])
        if np.count_nonzero(placed >= 0) + len(missing) > self.slots:
            raise ValueError(f"{len(experts)} experts routed at once, {self.slots} slots")
        self._clock += 1
        self.stamp[placed[placed >= 0]] = self._clock
        if len(missing):
            victims = self._least_recent(len(missing))
            evicted = self.holder[victims]
            self.slot_of.reshape(-1)[evicted[evicted >= 0]] = -1
            misses = experts[missing]
            self.holder[victims] = layer * self.slot_of.shape[1] + misses
            self.slot_of[layer, misses] = victims
            self.stamp[victims] = self._clock
            placed[missing] = victims
            fills[missing] = True
        return Admission(experts, rows, placed, fills)

    def offer(self, slots: Ids) -> None:
        """These slots may be used from now on; they are empty. They were withdrawn before."""
        self.offered[slots] = True
        self.stamp[slots] = 0
        self.slots = int(np.count_nonzero(self.offered))

    def withdraw(self, slots: Ids) -> None:
        """Forget what these slots hold and use them no more. Raises ValueError while bytes are on their way into one."""
        if self.pinned[slots].any():
            raise ValueError("a slot is being filled")
        held = self.holder[slots]
        self.slot_of.reshape(-1)[held[held >= 0]] = -1
        self.holder[slots] = -1
        self.offered[slots] = False
        self.slots = int(np.count_nonzero(self.offered))

    def cool(self, slots: Ids) -> None:
        """What these slots hold goes first, until it is used again."""
        self.stamp[slots] = 0

    def _least_recent(self, n: int) -> Ids:
        """The n slots with the oldest stamps, lower slots first among equals; never one stamped by this admission."""
        age = np.where(self.pinned | ~self.offered, self._clock + 1, self.stamp)
        return np.sort(np.argsort(age, kind="stable")[:n])

    def check(self) -> None:
        """Raises AssertionError unless both directions of the table agree."""
        held = np.flatnonzero(self.holder >= 0)
        assert (self.slot_of.reshape(-1)[self.holder[held]] == held).all(), "a slot's holder lies elsewhere"
        assert (self.slot_of >= 0).sum() == len(held), "an expert claims a slot it does not hold"
