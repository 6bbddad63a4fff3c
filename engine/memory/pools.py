"""What lives in leased slabs: KV pages, recurrent states, expert slots. Ids in, byte offsets into the arena out.

A slab of a pool is cut into equal cells; cell `slab * per_slab + i` lies at `slab * slab_bytes + i * cell_bytes`. Slabs
are leased when a cell is needed and go back to the arena when their last cell is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        self._free: dict[int, list[int]] = {}  # leased slab -> its free cells, only slabs that have some
        self._used: dict[int, int] = {}  # leased slab -> cells in use
        self.used = 0

    @property
    def capacity(self) -> int:
        """Cells this tenant can have in use at once: its slabs and those it may still lease."""
        return (len(self._used) + self.arena.available(self.tenant)) * self.per_slab

    @property
    def free(self) -> int:
        return self.capacity - self.used

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
        if not self._used.get(slab) or cell in self._free.get(slab, ()):
            raise ValueError(f"{self.tenant} cell {cell} is not in use")
        self._free.setdefault(slab, []).append(cell)
        self._used[slab] -= 1
        self.used -= 1
        if not self._used[slab]:
            del self._free[slab], self._used[slab]
            self.arena.release(self.tenant, [slab])

    def offset(self, cell: int) -> int:
        """Byte offset of a cell in the arena."""
        slab, i = divmod(cell, self.per_slab)
        return slab * self.arena.slab_bytes + i * self.cell_bytes

    def check(self) -> None:
        """Raises AssertionError when counts disagree with each other or with the arena."""
        assert self.arena.held(self.tenant) == frozenset(self._used), f"{self.tenant}: leases differ"
        assert self.used == sum(self._used.values()), f"{self.tenant}: cells in use differ"
        for slab, used in self._used.items():
            free = self._free.get(slab, [])
            assert used > 0 and used + len(free) == self.per_slab, f"{self.tenant}: slab {slab} does not add up"
            assert len(set(free)) == len(free) and all(c // self.per_slab == slab for c in free)


class PagePool:
    """KV pages with reference counts. A page is shared by the prefix cache and any number of running requests.

    `sentinel` is a page of its own that no request is ever given: a valid target for padding.
    """

    def __init__(self, arena: Arena, page_bytes: int, tenant: str = "kv") -> None:
        self.cells = Cells(arena, tenant, page_bytes)
        self.page_bytes = page_bytes
        self._refs: dict[int, int] = {}
        (self.sentinel,) = self.cells.alloc(1)

    @property
    def capacity(self) -> int:
        """Pages that can be in use at once, the sentinel not counted."""
        return self.cells.capacity - 1

    @property
    def used(self) -> int:
        return self.cells.used - 1

    @property
    def free(self) -> int:
        return self.cells.free

    def alloc(self, n: int) -> list[int]:
        """`n` pages with one reference each. Raises ArenaFull and takes none when fewer are free."""
        pages = self.cells.alloc(n)
        for page in pages:
            self._refs[page] = 1
        return pages

    def retain(self, page: int) -> None:
        """One more reference. Raises KeyError when the page is free."""
        self._refs[page] += 1

    def release(self, page: int) -> None:
        """One reference less; the last one frees the page. Raises KeyError when the page is free."""
        self._refs[page] -= 1
        if not self._refs[page]:
            del self._refs[page]
            self.cells.release(page)

    def refs(self, page: int) -> int:
        return self._refs.get(page, 0)

    def offset(self, page: int) -> int:
        """Byte offset in the arena."""
        return self.cells.offset(page)

    def check(self) -> None:
        self.cells.check()
        assert len(self._refs) == self.used and all(n > 0 for n in self._refs.values()), "page references do not add up"


class StatePool:
    """Recurrent states, live ones and checkpoints alike: one cell per linear layer: none straddles a slab."""

    def __init__(self, arena: Arena, layer_bytes: Sequence[int], tenant: str = "state") -> None:
        if not layer_bytes:
            raise ValueError("a state pool for a model without linear layers")
        self.layers = len(layer_bytes)
        self.cells = Cells(arena, tenant, max(layer_bytes))
        self.state_bytes = self.layers * self.cells.cell_bytes
        self._cells_of: dict[int, list[int]] = {}

    @property
    def capacity(self) -> int:
        return self.cells.capacity // self.layers

    @property
    def used(self) -> int:
        return len(self._cells_of)

    @property
    def free(self) -> int:
        return self.cells.free // self.layers

    def alloc(self) -> int:
        """A state id; its content is undefined. Raises ArenaFull when none is free."""
        cells = self.cells.alloc(self.layers)
        state = cells[0]  # unique while the state lives, because a cell belongs to one state
        self._cells_of[state] = cells
        return state

    def release(self, state: int) -> None:
        """Raises KeyError when the state is free."""
        for cell in self._cells_of.pop(state):
            self.cells.release(cell)

    def offsets(self, state: int) -> list[int]:
        """Byte offset in the arena of each linear layer's part. Raises KeyError when the state is free."""
        return [self.cells.offset(cell) for cell in self._cells_of[state]]

    def check(self) -> None:
        self.cells.check()
        cells = [cell for cells in self._cells_of.values() for cell in cells]
        assert len(set(cells)) == len(cells) == self.cells.used, "state cells do not add up"


class SlotPool:
    """Fast-tier places for experts, one expert each."""

    def __init__(self, arena: Arena, slot_bytes: int, tenant: str = "experts") -> None:
        self.cells = Cells(arena, tenant, slot_bytes)
        self.slot_bytes = slot_bytes

    @property
    def capacity(self) -> int:
        return self.cells.capacity

    @property
    def used(self) -> int:
        return self.cells.used

    @property
    def free(self) -> int:
        return self.cells.free

    def alloc(self, n: int) -> list[int]:
        """`n` slots. Raises ArenaFull and takes none when fewer are free."""
        return self.cells.alloc(n)

    def release(self, slot: int) -> None:
        """Raises ValueError when the slot is free."""
        self.cells.release(slot)

    def offset(self, slot: int) -> int:
        """Byte offset in the arena."""
        return self.cells.offset(slot)

    def check(self) -> None:
        self.cells.check()


@dataclass(frozen=True, slots=True)
class Pools:
    """The tenants of one arena. `states` is None for pure attention, `slots` when experts run where they lie."""

    arena: Arena
    pages: PagePool
    page_tokens: int
    states: StatePool | None = None
    slots: SlotPool | None = None

    def check(self) -> None:
        """Raises AssertionError when any bookkeeping disagrees."""
        self.arena.check()
        for pool in (self.pages, self.states, self.slots):
            if pool is not None:
                pool.check()
