"""Emptying slabs of KV and of recurrent states: what is cached and least worth goes, what must stay is copied elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.cells import Cells
from engine.memory.pools import PagePool, StatePool
from engine.scheduler.residency import Residency
from engine.scheduler.step import Runner

EVICT_TOGETHER = 64  # slabs


@dataclass(slots=True)
class Counts:
    """What was given up and what was copied."""

    dropped_experts: int = 0
    evicted_pages: int = 0
    evicted_states: int = 0
    moved_pages: int = 0
    moved_states: int = 0

    def add(self, other: Counts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Pages:
    """KV pages and everybody who notes them."""

    def __init__(self, pool: PagePool, cache: RadixCache, runner: Runner, residency: Residency) -> None:
        self.pool, self._cache, self._runner, self._residency = pool, cache, runner, residency

    @property
    def held(self) -> int:
        """Pages that requests hold, shared ones once."""
        return len({page for holder in self._residency.holders for page in holder.pages})

    def candidates(self) -> list[int]:
        """Slabs that could be emptied, the one with the fewest pages first. The sentinel stays where it is."""
        live, home = self.pool.cells.live(), self.pool.sentinel // self.pool.cells.per_slab
        return sorted((slab for slab in live if slab != home), key=lambda slab: (live[slab], -slab))

    def empty(self, slab: int, counts: Counts, evict: bool = True) -> bool:
        """Empty a closed slab. False when nothing could be done, because all pages are held and there is no other place."""
        cells, done = self.pool.cells, False
        live = cells.live()
        short = live[slab] - self.pool.free
        if evict:  # the tree is looked through once for many slabs
            together = sum(sorted(live[other] for other in cells.closed)[:EVICT_TOGETHER])
            short = max(short, together - self.pool.free)
        if short > 0 and evict:
            evicted = self._cache.evict(short)
            counts.evicted_pages += evicted
            done = evicted > 0
        if slab not in cells.closed:
            return True  # what was evicted lay in it
        pages = cells.cells_in(slab)
        if len(pages) > self.pool.free:
            return done
        moved = {page: self.pool.move(page, self._copy) for page in pages}
        self._tell(moved)
        counts.moved_pages += len(moved)
        return True

    def _copy(self, source: int, target: int) -> None:
        self._runner.copy_page(source, target, self._residency.pools.page_tokens)

    def _tell(self, moved: Mapping[int, int]) -> None:
        self._cache.moved(moved)
        for holder in self._residency.holders:
            holder.pages[:] = [moved.get(page, page) for page in holder.pages]


class States:
    """Recurrent states, live ones and checkpoints, and everybody who notes them. `live` of them are kept for requests."""

    def __init__(self, pool: StatePool, store: CheckpointStore, runner: Runner, residency: Residency) -> None:
        self.pool, self._store, self._runner, self._residency = pool, store, runner, residency
        self.live = pool.capacity - store.cap

    def fit(self, slabs: int, counts: Counts) -> int:
        """Keep as many checkpoints as so many slabs have room for beside the live states. Returns how many slabs it takes: more
        than were given while some must stay."""
        before = self._store.evictions
        room = slabs * self.pool.cells.per_slab // self.pool.layers - self.live
        self._store.resize(max(0, room) * self.pool.state_bytes)
        counts.evicted_states += self._store.evictions - before
        return max(slabs, -(-(self.live + self._store.cap) * self.pool.layers // self.pool.cells.per_slab))

    def candidates(self) -> list[int]:
        """Slabs that could be emptied, the one with the least in it first."""
        live = self.pool.cells.live()
        return sorted(live, key=lambda slab: (live[slab], -slab))

    def empty(self, slab: int, counts: Counts, evict: bool = True) -> bool:
        """Empty a closed slab, or copy about a slab's bytes of states out of it. False when nothing could be done."""
        copied, done, most = 0, False, self.pool.cells.arena.slab_bytes
        for state in self.pool.inside([slab]):
            if copied >= most:
                break
            while self.pool.holds(state) and not self.pool.moves(state):
                if not evict or not self._store.evict():
                    return done
                counts.evicted_states += 1
                done = True
            if not self.pool.holds(state):
                continue
            self._tell(state, self.pool.move(state, self._runner.copy_state))
            counts.moved_states += 1
            copied += self.pool.state_bytes
            done = True
        return done

    def _tell(self, old: int, new: int) -> None:
        self._store.moved({old: new})
        for holder in self._residency.holders:
            if holder.state == old:
                holder.state = new


def close(cells: Cells, candidates: Collection[int], n: int) -> list[int]:
    """Close the first `n` of the candidates, and no other slab. Returns them."""
    chosen = list(candidates)[: max(0, n)]
    cells.close(chosen)
    return chosen
