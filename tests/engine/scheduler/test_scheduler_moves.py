"""Memory that changes hands: every operation on arena, pools, cache and mover against a model that only knows contents."""

from __future__ import annotations

import hashlib
from array import array
from types import SimpleNamespace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.cache.checkpoints import CheckpointStore
from engine.cache.node import token_array
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena, ArenaFull
from engine.memory.pools import PagePool, Pools, SlotPool, StatePool
from engine.memory.split import Split
from engine.scheduler.moves import Mover
from engine.scheduler.residency import Residency

PAGE_TOKENS, PAGE_BYTES, SLAB_BYTES = 4, 256, 1024
LAYERS, LAYER_BYTES = 3, 448  # two cells in a slab, so that a state lies in two
SLOT_BYTES = 512
LIVE, CAP = 2, 4


class Memory:
    """The bytes of an arena, and a runner that copies them."""

    def __init__(self, pools: Pools) -> None:
        self.pools, self.bytes = pools, bytearray(pools.arena.bytes)
        self.emptied: list[int] = []

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        assert tokens == PAGE_TOKENS
        a, b = self.pools.pages.offset(source), self.pools.pages.offset(target)
        self.bytes[b : b + PAGE_BYTES] = self.bytes[a : a + PAGE_BYTES]

    def copy_state(self, source: int, target: int) -> None:
        for a, b in zip(self.pools.states.offsets(source), self.pools.states.offsets(target), strict=True):
            self.bytes[b : b + LAYER_BYTES] = self.bytes[a : a + LAYER_BYTES]

    def page(self, page: int) -> bytes:
        at = self.pools.pages.offset(page)
        return bytes(self.bytes[at : at + PAGE_BYTES])

    def state(self, state: int) -> bytes:
        return b"".join(bytes(self.bytes[at : at + LAYER_BYTES]) for at in self.pools.states.offsets(state))

    def fill_page(self, page: int, what: object) -> None:
        at = self.pools.pages.offset(page)
        self.bytes[at : at + PAGE_BYTES] = noise(what, PAGE_BYTES)

    def fill_state(self, state: int, what: object) -> None:
        data = noise(what, LAYERS * LAYER_BYTES)
        for i, at in enumerate(self.pools.states.offsets(state)):
            self.bytes[at : at + LAYER_BYTES] = data[i * LAYER_BYTES : (i + 1) * LAYER_BYTES]

    def give_back(self, slabs: list[int]) -> None:
        self.emptied += slabs
        for slab in slabs:
            self.bytes[slab * SLAB_BYTES : (slab + 1) * SLAB_BYTES] = bytes(SLAB_BYTES)


def noise(what: object, size: int) -> bytes:
    return hashlib.shake_128(repr(what).encode()).digest(size)


class Experts:
    """Slots that hold numbers: slot -> worth. Filling one writes into the arena."""

    least, most = 3, 40

    def __init__(self, memory: Memory, leased: list[int]) -> None:
        self.memory, self.leased, self.held = memory, set(leased), {}
        self.verified = 0

    def worth(self, groups: list[range]) -> list[float]:
        return [sum(self.held.get(slot, 0.0) for slot in group) for group in groups]

    def offer(self, slots: list[int]) -> None:
        assert not self.leased & set(slots)
        self.leased |= set(slots)

    def withdraw(self, slots: list[int]) -> int:
        assert set(slots) <= self.leased
        assert len(self.leased) - len(slots) >= self.least
        self.leased -= set(slots)
        return sum(self.held.pop(slot, None) is not None for slot in slots)

    def fill(self, slot: int, worth: float) -> None:
        self.held[slot] = worth
        at = self.memory.pools.slots.offset(slot)
        self.memory.bytes[at : at + SLOT_BYTES] = noise(("expert", slot), SLOT_BYTES)

    def ask(self, slots: int | None) -> None:
        raise AssertionError("not asked here")

    def verify(self) -> None:
        self.verified += 1
        for slot in self.held:
            at = self.memory.pools.slots.offset(slot)
            assert self.memory.bytes[at : at + SLOT_BYTES] == noise(("expert", slot), SLOT_BYTES)


def make(slabs: int = 24, kv: int = 6, experts: int = 7) -> SimpleNamespace:
    state_slabs = -(-(LIVE + CAP) * LAYERS // (SLAB_BYTES // 448))
    arena = Arena(SLAB_BYTES, slabs, {"kv": kv, "state": state_slabs, "experts": experts})
    pages, states = PagePool(arena, PAGE_BYTES), StatePool(arena, [LAYER_BYTES] * LAYERS)
    slots = SlotPool(arena, SLOT_BYTES)
    pools = Pools(arena, pages, PAGE_TOKENS, states, slots)
    memory = Memory(pools)
    store = CheckpointStore(states, CAP * states.state_bytes)
    cache = RadixCache(pages, PAGE_TOKENS, True, store.drop, store.protected)
    residency = Residency(memory, pools, cache, store)
    held = Experts(memory, slots.lease(experts))
    mover = Mover(pools, cache, store, memory, held, residency, give_back=memory.give_back)
    return SimpleNamespace(**locals())


class Moves(RuleBasedStateMachine):
    """The model: `cached` maps a prefix to the bytes of its page, as they were written; what the cache finds must have them.
    `running` are sequences with pages and a state, whose bytes may never change."""

    def __init__(self) -> None:
        super().__init__()
        self.m = make()
        self.written: dict[tuple[int, ...], bytes] = {}
        self.saved: dict[tuple[int, ...], bytes] = {}
        self.running: list[SimpleNamespace] = []
        self.serial = 0

    @initialize(sizes=st.lists(st.integers(4, 30), min_size=2, max_size=8))
    def begins_busy(self, sizes: list[int]) -> None:
        self.crowd(sizes, 3)
        for slot in range(12):
            self.use_expert(slot, slot % 5)

    # Requests

    @rule(n=st.integers(1, 30), kind=st.integers(0, 2))
    def start(self, n: int, kind: int) -> None:
        """A request begins: it takes what the cache has, and computes the rest."""
        m = self.m
        if len(self.running) >= LIVE:
            return
        tokens = token_array([kind] * min(n, 9) + [self.serial] * max(0, n - 9))
        self.serial += 1
        match = m.cache.match(tokens)
        whole = match.resume_at // PAGE_TOKENS
        for page in match.pages[:whole]:
            m.pages.retain(page)
        request = SimpleNamespace(pages=match.pages[:whole], state=-1, tokens=tokens)
        try:
            request.pages += m.residency.take(-(-len(tokens) // PAGE_TOKENS) - whole)
        except ArenaFull:
            for page in request.pages:
                m.pages.release(page)
            return
        request.state = m.states.alloc()
        m.memory.fill_state(request.state, ("state", tuple(tokens)))
        for i in range(whole, len(request.pages)):
            m.memory.fill_page(request.pages[i], self.prefix(tokens, i))
        request.contents = [m.memory.page(page) for page in request.pages]
        m.residency.holders.append(request)
        self.running.append(request)

    def prefix(self, tokens: array, i: int) -> tuple[int, ...]:
        return tuple(tokens[: (i + 1) * PAGE_TOKENS])

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), keep=st.booleans(), head=st.booleans())
    def finish(self, which: int, keep: bool, head: bool) -> None:
        """A request ends; what it computed goes to the cache, with a checkpoint at its end if there is room."""
        m = self.m
        request = self.running.pop(which % len(self.running))
        m.residency.holders.remove(request)
        size = len(request.tokens)
        if keep:
            m.cache.insert(request.tokens, request.pages)
            for i in range(len(request.pages)):
                self.written[self.prefix(request.tokens, i)] = m.memory.page(request.pages[i])
        adopted = keep and m.store.adopt(request.state, False)
        if adopted:
            kind = "head" if head else "turn"
            m.store.commit(m.cache, request.tokens, size, request.state, kind, "s", False)
            self.saved[tuple(request.tokens)] = noise(("state", tuple(request.tokens)), LAYERS * LAYER_BYTES)
        else:
            m.states.release(request.state)
        for page in request.pages:
            m.pages.release(page)

    @rule(sizes=st.lists(st.integers(4, 30), min_size=2, max_size=6), drop=st.integers(0, 4))
    def crowd(self, sizes: list[int], drop: int) -> None:
        """Several requests, one after the other; then some of what they left is given up, so that slabs have holes."""
        for i, n in enumerate(sizes):
            while len(self.running) >= LIVE:
                self.finish(i, True, i % 2 == 0)
            self.start(n, i % 3)
        self.m.cache.evict(drop)

    @rule(slot=st.integers(0, 100), worth=st.floats(0, 10))
    def use_expert(self, slot: int, worth: float) -> None:
        leased = sorted(self.m.held.leased)
        self.m.held.fill(leased[slot % len(leased)], float(worth))

    # Memory

    def some_split(self, data: st.DataObject) -> Split:
        m = self.m
        least, slabs = m.mover.least(), m.arena.slabs
        experts = data.draw(st.integers(least.experts_slabs, slabs - least.state_slabs - 1), "experts")
        state = data.draw(st.integers(least.state_slabs, slabs - experts - 1), "state")
        return Split(data.draw(st.integers(1, slabs - experts - state), "kv"), state, experts)

    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        target = self.some_split(data)
        held = self.m.mover.least().kv_slabs
        before = self.m.mover.split
        moved = self.m.mover.apply(target)
        assert moved.before == before and moved.after == self.m.mover.split
        if moved.complete:
            assert moved.after == target
        else:
            assert moved.after.kv_slabs > target.kv_slabs or moved.after.state_slabs > target.state_slabs
        if target.kv_slabs > held + 1 and target.state_slabs >= before.state_slabs:
            assert moved.complete, "nothing that runs was in the way"

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.m.mover.begin(self.some_split(data))

    @rule()
    def advance(self) -> None:
        before = self.m.mover.split
        moved = self.m.mover.advance()
        if moved is not None and moved.complete:
            assert moved.after == moved.wanted and self.m.mover.target is None
        assert moved is not None or self.m.mover.target is not None or before == self.m.mover.split

    @rule()
    def stop(self) -> None:
        self.m.mover.stop()
        assert self.m.mover.target is None

    @rule(pages=st.integers(1, 12))
    def make_room(self, pages: int) -> None:
        m = self.m
        m.mover.stop()
        free, cached = m.pages.free, m.cache.pages
        slabs = m.mover.make_room(pages, 99)
        assert m.pages.free >= free + (pages if slabs else 0) and m.cache.pages == cached

    @rule()
    def defragment(self) -> None:
        m = self.m
        held, idle = len(m.arena.held("kv")), m.mover.target is None
        freed = m.mover.defragment(1.0)
        assert len(m.arena.held("kv")) <= held and (idle or not freed)
        if idle:
            live = m.pages.cells.live()
            home = m.pages.sentinel // m.pages.cells.per_slab
            fewest = min((n for slab, n in live.items() if slab != home), default=0)
            room = sum(4 - n for n in live.values())
            assert not fewest or room - (4 - fewest) < fewest, "a slab could have been emptied"

    @rule(pages=st.integers(1, 5))
    def evict(self, pages: int) -> None:
        self.m.cache.evict(pages)

    @invariant()
    def nothing_is_lost(self) -> None:
        m = self.m
        m.mover.check()
        m.cache.check()
        m.store.check()
        for request in self.running:
            assert [m.memory.page(page) for page in request.pages] == request.contents
            expected = noise(("state", tuple(request.tokens)), LAYERS * LAYER_BYTES)
            assert m.memory.state(request.state) == expected
        for node in m.cache.nodes():
            tokens = token_array([])
            at = node
            while at is not None:
                tokens = array("I", at.key) + tokens
                at = at.parent
            if len(node.key) == 4 * PAGE_TOKENS:
                assert m.memory.page(node.page) == self.written[tuple(tokens)], "cached KV changed"
            for position, checkpoint in node.checkpoints.items():
                assert m.memory.state(checkpoint.state) == self.saved[tuple(tokens[:position])], "a checkpoint changed"
        m.held.verify()
        assert m.held.leased == {s for slab in m.arena.held("experts") for s in m.slots.slots_of(slab)}
        assert m.states.capacity - m.store.cap >= LIVE or m.mover.target is not None
        owners = [slab for tenant in ("kv", "state", "experts") for slab in m.arena.held(tenant)]
        assert len(set(owners)) == len(owners)


Moves.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_moves_lose_nothing = Moves.TestCase
