"""States that are given out to be written to and are no checkpoints yet, for side requests or for main ones."""

from __future__ import annotations

from engine.memory.pools import StatePool


class Reserved:
    """Every id is given back to the pool or taken over by a checkpoint."""

    def __init__(self, pool: StatePool) -> None:
        self._pool = pool
        self._sides: dict[int, bool] = {}  # state id -> for a side request

    def __len__(self) -> int:
        return len(self._sides)

    def __contains__(self, state: int) -> bool:
        return state in self._sides

    def count(self, side: bool) -> int:
        return sum(s == side for s in self._sides.values())

    def new(self, side: bool) -> int | None:
        """A state of the pool; None when it has none."""
        if not self._pool.free:
            return None
        state = self._pool.alloc()
        self._sides[state] = side
        return state

    def adopt(self, state: int, side: bool) -> None:
        self._sides[state] = side

    def taken(self, state: int) -> None:
        """Somebody else has it from now on."""
        del self._sides[state]

    def give_back(self, state: int) -> None:
        del self._sides[state]
        self._pool.release(state)

    def moved(self, old: int, new: int) -> None:
        """The state has another id now."""
        self._sides[new] = self._sides.pop(old)
