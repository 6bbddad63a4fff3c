from types import SimpleNamespace

import pytest

from engine.bench import fake_runner as fake
from engine.cache.checkpoints import CheckpointStore
from engine.cache.node import token_array
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, Pools, StatePool
from engine.protocol import EditPoint, Submit
from engine.scheduler.loop import Limits, Scheduler

PAGE_TOKENS = 4
VOCAB = 5


class Bench:
    """A scheduler on the fake runner with a small arena, and everything it emitted."""

    def __init__(
        self, hybrid=False, pages=40, max_running=3, chunk_tokens=16, checkpoints=6, window=None, vocab=VOCAB, **more
    ):
        page_slabs = -(-(pages + 1) // 4)
        states = max_running + checkpoints
        limits = {"kv": page_slabs, "state": states}
        arena = Arena(1024, page_slabs + states, limits)
        page_pool = PagePool(arena, 256)
        state_pool = StatePool(arena, [512, 512]) if hybrid else None
        self.pools = Pools(arena, page_pool, PAGE_TOKENS, state_pool)
        self.store = CheckpointStore(state_pool, checkpoints * state_pool.state_bytes) if hybrid else None
        self.cache = RadixCache(
            page_pool,
            PAGE_TOKENS,
            hybrid,
            stranded=self.store.drop if hybrid else lambda checkpoint: None,
            keep=self.store.protected if hybrid else lambda checkpoint: False,
        )
        self.runner = fake.FakeRunner(PAGE_TOKENS, vocab, hybrid)
        self.vocab, self.hybrid = vocab, hybrid
        self.window = window or page_pool.capacity * PAGE_TOKENS
        self.emitted = []
        self.scheduler = Scheduler(
            self.runner,
            self.pools,
            self.cache,
            self.store,
            Limits(self.window, vocab, max_running, chunk_tokens),
            self.emitted.append,
            **more,
        )
        self.submits = {}

    def submit(self, tokens, max_tokens=4, rid=None, points=(), **fields):
        rid = rid or f"r{len(self.submits)}"
        points = [EditPoint(*point) for point in points]
        self.submits[rid] = Submit(rid, list(tokens), max_tokens, edit_points=points, **fields)
        self.scheduler.submit(self.submits[rid])
        return rid

    def drain(self, limit=5000):
        for _ in range(limit):
            if not self.scheduler.step():
                return
        raise AssertionError("never idle")

    def of(self, rid, kind):
        return [m for m in self.emitted if m["t"] == kind and m["rid"] == rid]

    def output(self, rid):
        return [t for m in self.of(rid, "tokens") for t in m["ids"]]

    def done(self, rid):
        (message,) = self.of(rid, "done")
        return message

    def check_output(self, rid):
        """The reply equals the cold one, or is a beginning of it when the request was cancelled."""
        s, done = self.submits[rid], self.done(rid)
        expected, reason = fake.cold(s.tokens, s.max_tokens, self.vocab, self.hybrid, s.stop_ids, s.forced)
        if done["reason"] == "cancelled":
            assert self.output(rid) == expected[: len(self.output(rid))]
        else:
            assert (self.output(rid), done["reason"]) == (expected, reason)
        return expected

    def ask(self, tokens, **fields):
        """Submit, run to the end, check against the cold reply; returns (reply, usage)."""
        rid = self.submit(tokens, **fields)
        self.drain()
        self.check_output(rid)
        return self.output(rid), self.done(rid)["usage"]

    def cache_tokens(self, tokens):
        """As the cache takes them; the last one is never matched."""
        return token_array([*tokens, 0])

    def check(self):
        """Nothing leaks: what is in use is what the cache holds and what runs."""
        self.pools.check()
        self.cache.check()
        held = {n.page for n in self.cache.nodes()}.union(*(r.pages for r in self.scheduler.running))
        assert self.pools.pages.used == len(held)
        if self.store is not None:
            self.store.check()
            assert self.pools.states.used == len(self.store) + len(self.scheduler.running)


@pytest.fixture
def bench():
    return Bench


@pytest.fixture
def tools():
    return SimpleNamespace(fake=fake, page_tokens=PAGE_TOKENS, vocab=VOCAB)
