"""Which slots are leased to experts now, and how many of them are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.experts.slots import SlotTable


class Tenancy:
    """Keeps as many slots of `table` on offer as are leased and asked for. Nothing here may be called during a step."""

    def __init__(self, table: SlotTable, least: int, leased: Sequence[int] | None = None) -> None:
        """`least` slots are used whatever is asked; `leased` None: all."""
        self._table, self._least = table, least
        self._mask: npt.NDArray[np.bool_] = np.full(len(table.holder), leased is None)
        self._asked: int | None = None
        if leased is not None:
            self._mask[_ids(leased)] = True
            table.withdraw(np.flatnonzero(~self._mask))

    @property
    def leased(self) -> int:
        return int(np.count_nonzero(self._mask))

    def ask(self, slots: int | None) -> None:
        """Use at most so many from now on; None: all that are leased."""
        self._asked = None if slots is None else max(slots, self._least)
        self._settle()

    def add(self, slots: Sequence[int]) -> None:
        """These are leased now, and empty."""
        self._mask[_ids(slots)] = True
        self._settle()

    def remove(self, slots: Sequence[int]) -> int:
        """These are not leased any more. Returns how many experts lay in them. Raises ValueError, and removes none, while
        bytes are on their way into one."""
        gone = _ids(slots)
        dropped = int(np.count_nonzero(self._table.holder[gone] >= 0))
        self._table.withdraw(gone)
        self._mask[gone] = False
        self._settle()
        return dropped

    def worth(self, groups: Sequence[Sequence[int]]) -> list[float]:
        """Uses of what lies in each group of slots, of late, in units of the most used expert's."""
        worth = self._table.worth
        dearest = float(worth.max(initial=-np.inf))
        if not groups or not np.isfinite(dearest):
            return [0.0] * len(groups)
        together: list[float] = np.exp2(worth[np.asarray(groups, dtype=np.int64)] - dearest).sum(axis=1).tolist()
        return together

    def _settle(self) -> None:
        """What is worth least goes first; of equals, the highest slots."""
        table, room = self._table, self.leased
        wanted = room if self._asked is None else min(self._asked, room)
        if table.slots > wanted:
            offered = np.flatnonzero(table.offered)[::-1]
            table.withdraw(offered[np.argsort(table.worth[offered], kind="stable")[: table.slots - wanted]])
        elif table.slots < wanted:
            table.offer(np.flatnonzero(self._mask & ~table.offered)[: wanted - table.slots])


def _ids(slots: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.asarray(slots, dtype=np.int64)
