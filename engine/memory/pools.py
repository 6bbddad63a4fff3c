"""What lives in leased slabs: KV pages, recurrent states, expert slots. Ids in, byte offsets into the arena out."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.memory.arena import Arena
from engine.memory.cells import Cells
from engine.memory.cells import aligned as aligned


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

    def move(self, page: int, copy: Callable[[int, int], None]) -> int:
        """Another place, in an open slab, for what is in `page`, with all its references; `copy(page, new)` fills it.
        Returns the new page; whoever noted the old one must be told. Raises ArenaFull, and moves nothing, when none is free.
        """
        (target,) = self.cells.alloc(1)
        copy(page, target)
        self._refs[target] = self._refs.pop(page)
        self.cells.release(page)
        return target

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
        self._ids: list[int] = []  # given back, a heap
        self._next_id = 0

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
        return self._name(self.cells.alloc(self.layers))

    def release(self, state: int) -> None:
        """Raises KeyError when the state is free."""
        for cell in self._forget(state):
            self.cells.release(cell)

    def inside(self, slabs: Iterable[int]) -> list[int]:
        """The states that have a part in one of these slabs."""
        chosen = set(slabs)
        return [s for s, cells in self._cells_of.items() if any(c // self.cells.per_slab in chosen for c in cells)]

    def holds(self, state: int) -> bool:
        return state in self._cells_of

    def moves(self, state: int) -> bool:
        """True when there is room for what of `state` lies in closed slabs. Raises KeyError when the state is free."""
        return len(self._leaving(state)) <= self.cells.free

    def move(self, state: int, copy: Callable[[int, int], None]) -> int:
        """Other places for the parts of `state` that lie in closed slabs; `copy(state, new)` fills them. Returns the new id;
        whoever noted the old one must be told. Raises ArenaFull, and moves nothing, when there are too few."""
        leaving = self._leaving(state)
        places = dict(zip(leaving, self.cells.alloc(len(leaving)), strict=True))
        target = self._name([places.get(cell, cell) for cell in self._cells_of[state]])
        copy(state, target)
        self._forget(state)
        for cell in leaving:
            self.cells.release(cell)
        return target

    def offsets(self, state: int) -> list[int]:
        """Byte offset in the arena of each linear layer's part. Raises KeyError when the state is free."""
        return [self.cells.offset(cell) for cell in self._cells_of[state]]

    def check(self) -> None:
        self.cells.check()
        cells = [cell for cells in self._cells_of.values() for cell in cells]
        assert len(set(cells)) == len(cells) == self.cells.used, "state cells do not add up"
        assert {*self._ids, *self._cells_of} == set(range(self._next_id)), "state ids do not add up"

    def _leaving(self, state: int) -> list[int]:
        closed = self.cells.closed
        return [cell for cell in self._cells_of[state] if cell // self.cells.per_slab in closed]

    def _name(self, cells: list[int]) -> int:
        if self._ids:
            state = heapq.heappop(self._ids)
        else:
            state, self._next_id = self._next_id, self._next_id + 1
        self._cells_of[state] = cells
        return state

    def _forget(self, state: int) -> list[int]:
        cells = self._cells_of.pop(state)
        heapq.heappush(self._ids, state)
        return cells


class SlotPool:
    """Fast-tier places for experts, one expert each, leased by whole slabs: the cells of a slab are its slots."""

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

    @property
    def per_slab(self) -> int:
        return self.cells.per_slab

    def lease(self, slabs: int) -> list[int]:
        """All slots of `slabs` more slabs, ascending. Raises ArenaFull and takes none when fewer are available."""
        return sorted(self.cells.alloc(slabs * self.per_slab))

    def slots_of(self, slab: int) -> range:
        """The slots in a slab, leased or not."""
        return range(slab * self.per_slab, (slab + 1) * self.per_slab)

    def give_back(self, slabs: Iterable[int]) -> None:
        """Raises ValueError when one is not leased."""
        for slab in slabs:
            for slot in self.slots_of(slab):
                self.cells.release(slot)

    def offset(self, slot: int) -> int:
        """Byte offset in the arena."""
        return self.cells.offset(slot)

    def check(self) -> None:
        self.cells.check()
        assert all(used == self.per_slab for used in self.cells.live().values()), "a slab of slots is leased in part"


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
