"""Slabs of expert slots: copies of what the bank has, so that they are given up at once and filled again as experts are routed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.memory.arena import Arena
from engine.memory.pools import SlotPool
from engine.memory.split import EXPERTS
from engine.scheduler.vacate import Counts


class ExpertSlots(Protocol):
    """The executor as a move sees it. Slot ids are cells of the slot pool; nothing is called during a step."""

    least: int  # so many slots must stay: one token's experts
    most: int  # more would lie empty: all experts of all layers

    def worth(self, groups: Sequence[Sequence[int]]) -> list[float]:
        """What the experts in each group of slots are worth to the policy together; 0 when they are empty. All groups have
        the same length."""

    def offer(self, slots: Sequence[int]) -> None:
        """These slots are leased from now on, and empty."""

    def withdraw(self, slots: Sequence[int]) -> int:
        """Forget what these slots hold and use them no more. Returns how many experts were in them."""

    def ask(self, slots: int | None) -> None:
        """Use at most so many of the leased slots; None: all."""

    def verify(self) -> None:
        """Compare one expert in a slot with its source. Raises ExpertsDamaged."""


class ExpertSlabs:
    """`pool` and `executor` are None where experts have no slots that could change hands."""

    def __init__(self, arena: Arena, pool: SlotPool | None, executor: ExpertSlots | None) -> None:
        self._arena, self._pool, self._executor = arena, pool, executor

    @property
    def move(self) -> bool:
        """True where slots may change hands."""
        return self._executor is not None and self._pool is not None

    @property
    def least(self) -> int:
        """Slabs that must stay: one token's experts."""
        return self.slabs_of(0 if self._executor is None else self._executor.least)

    @property
    def most_slots(self) -> int:
        """More slots would lie empty."""
        return self._executor.most if self._executor is not None else 0

    def slabs_of(self, slots: int) -> int:
        """Slabs for so many slots; those held now where they cannot change hands."""
        if self._executor is None or self._pool is None:
            return len(self._arena.held(EXPERTS))
        return -(-slots // self._pool.per_slab)

    def ask(self, slots: int | None) -> None:
        """Use at most so many of the slots that experts have; None: all. Raises ExpertsDamaged."""
        if self._executor is not None:
            self._executor.ask(slots)
            self._executor.verify()

    def verify(self) -> None:
        """Compare one expert in a slot with its source. Raises ExpertsDamaged."""
        if self._executor is not None:
            self._executor.verify()

    def drop(self, counts: Counts) -> bool:
        """Give back the slabs beyond the grant at once, those worth least first. False when there were none."""
        pool, executor = self._pool, self._executor
        over = len(self._arena.held(EXPERTS)) - self._arena.limit(EXPERTS)
        if pool is None or executor is None or over <= 0:
            return False
        held = sorted(self._arena.held(EXPERTS), reverse=True)
        worth = dict(zip(held, executor.worth([pool.slots_of(slab) for slab in held]), strict=True))
        slabs = sorted(held, key=worth.__getitem__)[:over]
        counts.dropped_experts += executor.withdraw([slot for slab in slabs for slot in pool.slots_of(slab)])
        pool.give_back(slabs)
        return True

    def fill(self) -> None:
        """Lease what is granted and free."""
        pool, executor = self._pool, self._executor
        if pool is not None and executor is not None and (slabs := self._arena.available(EXPERTS)):
            executor.offer(pool.lease(slabs))
