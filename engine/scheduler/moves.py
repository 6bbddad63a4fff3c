"""Memory changes hands between two steps: KV pages, recurrent states and expert slots trade slabs while requests run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.pools import Pools
from engine.memory.split import EXPERTS, KV, STATE, Split
from engine.scheduler.moved import Moved, Way
from engine.scheduler.residency import Residency
from engine.scheduler.slots import ExpertSlabs, ExpertSlots
from engine.scheduler.step import Runner
from engine.scheduler.vacate import Counts, Pages, States, close

EMPTY_AT_ONCE = 256 << 20  # bytes given to the system between two steps


class Mover:
    """Called between two steps only. `executor` is None where experts have no slots that could change hands; `give_back` gets
    slabs whose memory may go to the system: it stays addressable, with undefined content.

    What is granted never exceeds the arena, what running requests hold is never taken, and a tenant's grant grows only as
    slabs come free.
    """

    def __init__(
        self,
        pools: Pools,
        cache: RadixCache,
        store: CheckpointStore | None,
        runner: Runner,
        executor: ExpertSlots | None,
        residency: Residency,
        clock: Callable[[], float] = time.perf_counter,
        give_back: Callable[[Sequence[int]], None] = lambda slabs: None,
    ) -> None:
        self._pools, self._arena = pools, pools.arena
        self._experts = ExpertSlabs(pools.arena, pools.slots, executor)
        self._pages = Pages(pools.pages, cache, runner, residency)
        self._states = None
        if pools.states is not None and store is not None:
            self._states = States(pools.states, store, runner, residency)
        self._clock, self._give_back = clock, give_back
        self._way: Way | None = None

    @property
    def split(self) -> Split:
        """What is granted now."""
        return Split.of(self._arena)

    @property
    def target(self) -> Split | None:
        """Where the move under way is going; None: there is none."""
        return None if self._way is None else self._way.wanted

    @property
    def slabs(self) -> int:
        """Of the arena."""
        return self._arena.slabs

    @property
    def slab_bytes(self) -> int:
        return self._arena.slab_bytes

    @property
    def held_pages(self) -> int:
        """Pages that requests hold."""
        return self._pages.held

    @property
    def untouched_bytes(self) -> int:
        """Memory that is granted and still to be taken from the system."""
        return self._arena.untouched() * self._arena.slab_bytes

    @property
    def experts_move(self) -> bool:
        return self._experts.move

    def least(self) -> Split:
        """What each tenant must keep now: pages that requests hold and the sentinel, the live states, a token's experts."""
        state = 0
        if self._states is not None:
            cells = self._states.pool.cells
            state = -(-self._states.live * self._states.pool.layers // cells.per_slab)
        kv = -(-(self._pages.held + 1) // self._pages.pool.cells.per_slab)
        return Split(kv, state, self._experts.least)

    def most_slots(self) -> int:
        """More slots would lie empty."""
        return self._experts.most_slots

    def serve_with(self, executor: ExpertSlots | None) -> None:
        """Experts are served by another one from now on, in the slots they have. What is under way ends where it is."""
        self.stop()
        self._experts = ExpertSlabs(self._arena, self._pools.slots, executor)

    def ask(self, slots: int | None) -> None:
        """Use at most so many of the slots that experts have; None: all. Raises ExpertsDamaged."""
        self._experts.ask(slots)

    def slabs_of(self, slots: int) -> int:
        """Slabs for so many slots; those held now where they cannot change hands."""
        return self._experts.slabs_of(slots)

    def begin(self, target: Split) -> None:
        """Go to `target` from now on, a piece for each `advance`; what was under way before ends where it is.

        Raises ValueError when it is more than the arena, or less than any model needs: a page beside the sentinel, the live
        states, one token's experts.
        """
        least = self.least()
        short = target.kv_slabs < 1 or target.state_slabs < least.state_slabs
        if target.slabs > self._arena.slabs or short or target.experts_slabs < least.experts_slabs:
            raise ValueError(f"{target} is no split of {self._arena.slabs} slabs with at least {least}")
        self.stop()
        self._way = Way(self.split, target, Counts())
        for tenant in (KV, EXPERTS):
            self._arena.set_limit(tenant, min(self.split.get(tenant), target.get(tenant)))

    def advance(self) -> Moved | None:
        """Do the next piece: at most about a slab's bytes are copied. Returns what was done in all when the target is reached,
        or when nothing more can be done now (not `complete`; it goes on as soon as it can). None: more is to come, or nothing
        is under way. Raises ExpertsDamaged when an expert differs from its source at the end.
        """
        way = self._way
        if way is None:
            return None
        start = self._clock()
        worked = self._shrink(way)
        grown = self._grow(way.wanted)
        emptied = self._empty()
        way.spent(self._clock() - start)
        reached = self.split == way.wanted
        if (reached and not emptied) or not (worked or grown or emptied):
            return self._report(way, reached)
        return None

    def stop(self) -> None:
        """What is under way ends where it is: everybody keeps what they have."""
        if self._way is not None:
            self._way = None
            self._settle()

    def apply(self, target: Split) -> Moved:
        """All of a move at once, as far as protection allows now; what it could not do is given up. See `begin` and `advance`."""
        self.begin(target)
        while (moved := self.advance()) is None:
            pass
        self.stop()
        return moved

    def make_room(self, pages: int, free: int) -> int:
        """Grant KV slabs for `pages` more pages, from up to `free` spare slabs and then from experts; none when all of them cannot
        be had. Nothing cached is given up; a move under way ends. Returns how many slabs."""
        self.stop()
        slabs = -(-pages // self._pages.pool.cells.per_slab)
        split = self.split
        from_experts = max(0, slabs - min(free, self._arena.spare()))
        if slabs <= 0 or split.experts_slabs - from_experts < self.least().experts_slabs:
            return 0
        if from_experts:
            self._arena.set_limit(EXPERTS, split.experts_slabs - from_experts)
            self._experts.drop(Counts())
        self._arena.set_limit(KV, split.kv_slabs + slabs)
        return slabs

    def defragment(self, budget_s: float) -> int:
        """Copy pages and states out of slabs that the others have room for. For idle time. Returns how many slabs it freed."""
        until, freed, counts = self._clock() + budget_s, 0, Counts()
        if self._way is not None:
            return 0
        for _, tenant in self._tenants():
            cells = tenant.pool.cells
            while self._clock() < until and (slabs := tenant.candidates()):
                live = cells.live()
                room = sum(cells.per_slab - used for slab, used in live.items() if slab != slabs[0])
                if live[slabs[0]] > room:
                    break
                cells.close(slabs[:1])
                while slabs[0] in cells.closed and tenant.empty(slabs[0], counts, evict=False):
                    pass
                if slabs[0] in cells.closed:
                    cells.close(())
                    break
                freed += 1
        return freed

    def check(self) -> None:
        """Raises AssertionError when grants or leases do not add up."""
        self._pools.check()
        split = self.split
        assert split.slabs <= self._arena.slabs, f"{split} is more than {self._arena.slabs} slabs"
        assert len(self._arena.held(EXPERTS)) == split.experts_slabs, "experts are granted what they do not hold"
        if self._way is None:
            for pool in (self._pools.pages, self._pools.states):
                assert pool is None or not pool.cells.closed, "a slab stayed closed"
        assert sum(len(self._arena.held(t)) for t in (KV, STATE, EXPERTS)) <= split.slabs

    # Parts of a piece

    def _shrink(self, way: Way) -> bool:
        """True when something was given up or copied."""
        if self._experts.drop(way.counts):
            return True
        if self._states is not None:
            slabs = min(self.split.state_slabs, way.wanted.state_slabs)
            self._arena.set_limit(STATE, self._states.fit(slabs, way.counts))
        for name, tenant in self._tenants():
            over = len(self._arena.held(name)) - self._arena.limit(name)
            for slab in close(tenant.pool.cells, tenant.candidates(), over)[:1]:
                if tenant.empty(slab, way.counts):
                    return True
        return False

    def _tenants(self) -> list[tuple[str, Pages | States]]:
        return [(KV, self._pages)] if self._states is None else [(STATE, self._states), (KV, self._pages)]

    def _grow(self, wanted: Split) -> bool:
        grown = False
        for tenant in (KV, STATE, EXPERTS):
            more = min(wanted.get(tenant) - self.split.get(tenant), self._arena.spare())
            if more > 0:
                self._arena.set_limit(tenant, self.split.get(tenant) + more)
                grown = True
        if grown and self._states is not None:
            self._states.fit(self._arena.limit(STATE), Counts())
        self._experts.fill()
        return grown

    def _empty(self) -> bool:
        """Give the system memory that nobody is granted; False when there was none."""
        slabs = self._arena.empty(max(1, EMPTY_AT_ONCE // self._arena.slab_bytes))
        if slabs:
            self._give_back(slabs)
        return bool(slabs)

    def _settle(self) -> None:
        """Grant everybody what they are granted or hold now."""
        split = self.split
        for tenant in (KV, STATE, EXPERTS):
            self._arena.set_limit(tenant, split.get(tenant))
        for pool in (self._pools.pages, self._pools.states):
            if pool is not None:
                pool.cells.close(())
        if self._states is not None:
            self._states.fit(split.state_slabs, Counts())

    def _report(self, way: Way, complete: bool) -> Moved:
        if complete:
            self.stop()
        self._experts.verify()
        return way.report(self.split, complete)
