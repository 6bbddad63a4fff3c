"""Equal cells inside the slabs that one tenant leases. Ids in, byte offsets into the arena out.

A slab is cut into equal cells; cell `slab * per_slab + i` lies at `slab * slab_bytes + i * cell_bytes`. Slabs are leased when
a cell is needed and go back to the arena when their last cell is free. A slab that is to be given back is closed first: no
more cells are handed out in it, and those in use are moved by whoever knows where they are noted.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.memory.arena import Arena, ArenaFull

ALIGN_BYTES = 64


def aligned(size_bytes: int) -> int:
    """Rounded up to what the kernels' loads want."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


class Cells:
    """Equal cells inside one tenant's slabs. Cells are handed out from the fullest usable end: lowest slab first."""

    def __init__(self, arena: Arena, tenant: str, cell_bytes: int) -> None:
        self.arena = arena
        self.tenant = tenant
        self.cell_bytes = aligned(cell_bytes)
        if not 0 < self.cell_bytes <= arena.slab_bytes:
            raise ValueError(f"a {tenant} cell of {self.cell_bytes} bytes does not fit a slab of {arena.slab_bytes}")
        self.per_slab = arena.slab_bytes // self.cell_bytes
        self._free: dict[int, list[int]] = {}  # open leased slab -> its free cells, only slabs that have some
        self._closed: dict[int, list[int]] = {}  # closed leased slab -> its free cells
        self._used: dict[int, int] = {}  # leased slab -> cells in use
        self.used = 0

    @property
    def capacity(self) -> int:
        """Cells this tenant can have in use at once: in its slabs and those it may still lease. Of a closed slab only
        those in use count."""
        whole = len(self._used) - len(self._closed) + self.arena.available(self.tenant)
        return whole * self.per_slab + sum(self._used[slab] for slab in self._closed)

    @property
    def free(self) -> int:
        return self.capacity - self.used

    @property
    def closed(self) -> frozenset[int]:
        """The slabs that are to be given back."""
        return frozenset(self._closed)

    def live(self) -> dict[int, int]:
        """Cells in use in each leased slab."""
        return dict(self._used)

    def cells_in(self, slab: int) -> list[int]:
        """The cells in use in a leased slab, ascending. Raises KeyError when the slab is not leased."""
        free = {*self._free.get(slab, ()), *self._closed.get(slab, ())}
        assert self._used[slab] + len(free) == self.per_slab
        return [cell for cell in range(slab * self.per_slab, (slab + 1) * self.per_slab) if cell not in free]

    def close(self, slabs: Iterable[int]) -> None:
        """Hand out no more cells in exactly these leased slabs; in others that were closed, again. Raises KeyError when one
        is not leased."""
        chosen = {slab: self._used[slab] for slab in slabs}
        for slab in set(self._closed) - set(chosen):
            if free := self._closed.pop(slab):
                self._free[slab] = free
        for slab in set(chosen) - set(self._closed):
            self._closed[slab] = self._free.pop(slab, [])

    def alloc(self, n: int) -> list[int]:
        """`n` cells. Raises ArenaFull and takes none when fewer are free."""
        if n > self.free:
            raise ArenaFull(f"{n} {self.tenant} cells asked for, {self.free} free of {self.capacity}")
        taken: list[int] = []
        while len(taken) < n:
            if not self._free:
                (slab,) = self.arena.lease(self.tenant, 1)
                self._free[slab] = list(range((slab + 1) * self.per_slab - 1, slab * self.per_slab - 1, -1))
                self._used[slab] = 0
            slab = min(self._free)
            cells = self._free[slab]
            while cells and len(taken) < n:
                taken.append(cells.pop())
                self._used[slab] += 1
            if not cells:
                del self._free[slab]
        self.used += n
        return taken

    def release(self, cell: int) -> None:
        """Free one cell; its slab goes back to the arena with its last one. Raises ValueError when the cell is free."""
        slab = cell // self.per_slab
        free = self._closed if slab in self._closed else self._free
        if not self._used.get(slab) or cell in free.get(slab, ()):
            raise ValueError(f"{self.tenant} cell {cell} is not in use")
        free.setdefault(slab, []).append(cell)
        self._used[slab] -= 1
        self.used -= 1
        if not self._used[slab]:
            del free[slab], self._used[slab]
            self.arena.release(self.tenant, [slab])

    def offset(self, cell: int) -> int:
        """Byte offset of a cell in the arena."""
        slab, i = divmod(cell, self.per_slab)
        return slab * self.arena.slab_bytes + i * self.cell_bytes

    def check(self) -> None:
        """Raises AssertionError when counts disagree with each other or with the arena."""
        assert self.arena.held(self.tenant) == frozenset(self._used), f"{self.tenant}: leases differ"
        assert self.used == sum(self._used.values()), f"{self.tenant}: cells in use differ"
        assert not set(self._free) & set(self._closed), f"{self.tenant}: a slab is open and closed"
        assert set(self._closed) <= set(self._used), f"{self.tenant}: a slab is closed that is not leased"
        for slab, used in self._used.items():
            free = self._closed[slab] if slab in self._closed else self._free.get(slab, [])
            assert used > 0 and used + len(free) == self.per_slab, f"{self.tenant}: slab {slab} does not add up"
            assert len(set(free)) == len(free) and all(c // self.per_slab == slab for c in free)
