"""The fast tier's slot table: which (layer, expert) lies in which slot. Bookkeeping only; the executor copies.

One table over all layers; the slot worth least to the policy goes first. This numpy version is the reference for any other: a
kernel needs the routed experts' worth, one scan over `worth` that keeps the least n, and the rewriting of ids to slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.experts.policy import DEFAULT, POLICIES, Ids, Policy, Worth


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

    `slot_of` [layers, experts] is a slot or -1; `holder` [slots] is layer * experts + expert or -1; `worth` [slots] is what
    the policy thinks of the holder, -inf for an empty slot.
    """

    def __init__(self, layers: int, experts: int, slots: int, policy: Policy | None = None) -> None:
        self.slot_of: Ids = np.full((layers, experts), -1, dtype=np.int64)
        self.holder: Ids = np.full(slots, -1, dtype=np.int64)
        self.worth: Worth = np.full(slots, -np.inf)
        self.pinned: npt.NDArray[np.bool_] = np.zeros(slots, dtype=np.bool_)  # never victims: bytes are on their way
        self.offered: npt.NDArray[np.bool_] = np.ones(slots, dtype=np.bool_)  # leased to experts now
        self.slots = slots
        self._policy = policy or POLICIES[DEFAULT](layers, experts)

    @property
    def uses(self) -> Worth:
        """[layers, experts]: what the policy thinks of each."""
        return self._policy.worth

    def admit(
        self, layer: int, routed: npt.NDArray[np.integer], fills_allowed: int | None = None, used: bool = True
    ) -> Admission:
        """Give the distinct experts among `routed` [M, top_k] slots, or those of one row [top_k]; mutates the table as if the fills had been made.

        Slots used by this admission are never its victims. With `fills_allowed`, at most so many misses are given one:
        those with the most rows, then those worth most to the policy. Without `used` they only come ahead of a use, of
        which the policy is not told. Raises ValueError when more slots are needed than exist.
        """
        routed = np.atleast_2d(routed)
        if len(routed) == 1:  # one row's experts are distinct
            experts, rows = np.sort(routed[0]).astype(np.int64), np.ones(routed.shape[1], dtype=np.int64)
        else:
            experts, rows = np.unique(routed, return_counts=True)
            experts = experts.astype(np.int64)
        placed = self.slot_of[layer, experts]
        missing = np.flatnonzero(placed < 0)
        held = len(experts) - len(missing)
        wanted = len(missing) if fills_allowed is None else min(len(missing), max(0, fills_allowed))
        if held + wanted > self.slots:
            raise ValueError(f"{held + wanted} experts needed at once, {self.slots} slots")
        victims = self._victims(wanted, placed[placed >= 0])
        if used:
            self._policy.touch(layer, routed, experts)
        worth = self._policy.worth[layer, experts]
        fills = np.zeros(len(experts), dtype=np.bool_)
        if wanted < len(missing):
            missing = np.sort(missing[np.lexsort((-worth[missing], -rows[missing]))[:wanted]])
        if wanted:
            evicted = self.holder[victims]
            self.slot_of.reshape(-1)[evicted[evicted >= 0]] = -1
            misses = experts[missing]
            self.holder[victims] = layer * self.slot_of.shape[1] + misses
            self.slot_of[layer, misses] = victims
            placed[missing] = victims
            fills[missing] = True
        resident = placed >= 0
        self.worth[placed[resident]] = worth[resident]
        return Admission(experts, rows, placed, fills)

    def offer(self, slots: Ids) -> None:
        """These slots may be used from now on; they are empty. They were withdrawn before."""
        self.offered[slots] = True
        self.slots = int(np.count_nonzero(self.offered))

    def withdraw(self, slots: Ids) -> None:
        """Forget what these slots hold and use them no more. Raises ValueError while bytes are on their way into one."""
        if self.pinned[slots].any():
            raise ValueError("a slot is being filled")
        self.drop(slots)
        self.offered[slots] = False
        self.slots = int(np.count_nonzero(self.offered))

    def drop(self, slots: Ids) -> None:
        """Forget what these slots hold; they stay on offer. For slots whose filling failed."""
        held = self.holder[slots]
        self.slot_of.reshape(-1)[held[held >= 0]] = -1
        self.holder[slots] = -1
        self.worth[slots] = -np.inf

    def _victims(self, n: int, used: Ids) -> Ids:
        """The n slots of least worth, lower slots first among equals, then in ascending order; none of `used`.

        One scan per victim, each a fraction of what partly sorting costs. A kernel would keep its n best in one scan.
        """
        if not n:
            return np.empty(0, dtype=np.int64)
        worth = np.where(self.pinned | ~self.offered, np.inf, self.worth)
        worth[used] = np.inf
        victims = np.empty(n, dtype=np.int64)
        for i in range(n):
            victims[i] = worth.argmin()
            if worth[victims[i]] == np.inf:
                raise ValueError(f"{n} slots needed, {i} are free to be filled")
            worth[victims[i]] = np.inf
        victims.sort()
        return victims

    def check(self) -> None:
        """Raises AssertionError unless both directions of the table agree."""
        held = np.flatnonzero(self.holder >= 0)
        assert (self.slot_of.reshape(-1)[self.holder[held]] == held).all(), "a slot's holder lies elsewhere"
        assert (self.slot_of >= 0).sum() == len(held), "an expert claims a slot it does not hold"
        assert (self.worth[self.holder < 0] == -np.inf).all(), "an empty slot is worth something"
        assert not (self.holder >= 0)[~self.offered].any(), "a slot that was withdrawn holds an expert"
