"""Requests while memory changes hands: who fits after a move waits for it, nobody fails, and every answer is the cold one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.bench import fake_runner as fake
from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena
from engine.memory.foreign import Spare
from engine.memory.pools import PagePool, Pools, SlotPool, StatePool
from engine.memory.split import Split
from engine.protocol import Submit
from engine.scheduler.balancing import Balancing
from engine.scheduler.loop import Limits, Scheduler
from engine.scheduler.moves import Mover
from engine.scheduler.outlook import Outlook

PAGE_TOKENS, VOCAB = 4, 5


class Experts:
    """Slots that only count."""

    least, most = 2, 60

    def __init__(self, leased: list[int]) -> None:
        self.leased, self.asked, self.verified = set(leased), None, 0

    def worth(self, groups):
        return [float(group[0]) for group in groups]

    def offer(self, slots):
        self.leased |= set(slots)

    def withdraw(self, slots):
        assert len(self.leased) - len(slots) >= self.least
        self.leased -= set(slots)
        return len(slots)

    def ask(self, slots):
        self.asked = slots

    def verify(self):
        self.verified += 1


class Curve:
    """Half of all experts are missed with no slots, none with all."""

    steps, asked = 1, 20.0

    def misses(self, slots: int) -> float:
        return max(0.0, 10.0 * (1 - slots / 60))


class Foreign:
    def __init__(self) -> None:
        self.give = self.take = 0

    def look(self, promised_bytes: int = 0) -> Spare:
        give, self.give = self.give, 0
        return Spare(0, 0, 0, give, self.take, "a test")


class Memory:
    """A scheduler on the fake runner whose arena has 24 slabs of 4 pages or 2 slots."""

    def __init__(self, hybrid=False, kv=6, experts=12, running=3, window=10_000, auto=True, **pins) -> None:
        states = running + 4 if hybrid else 0
        self.arena = Arena(1024, kv + experts + states, {"kv": kv, "state": states, "experts": experts})
        pages, slots = PagePool(self.arena, 256), SlotPool(self.arena, 512)
        state_pool = StatePool(self.arena, [512, 512]) if hybrid else None
        self.pools = Pools(self.arena, pages, PAGE_TOKENS, state_pool, slots)
        self.store = CheckpointStore(state_pool, 4 * state_pool.state_bytes) if hybrid else None
        drop, keep = (self.store.drop, self.store.protected) if hybrid else (lambda c: None, lambda c: False)
        self.cache = RadixCache(pages, PAGE_TOKENS, hybrid, drop, keep)
        self.runner = fake.FakeRunner(PAGE_TOKENS, VOCAB, hybrid)
        self.experts, self.foreign, self.emitted = Experts(slots.lease(experts)), Foreign(), []
        self.hybrid, self.now, self.given = hybrid, 0.0, []

        def make(residency):
            mover = Mover(
                self.pools, self.cache, self.store, self.runner, self.experts, residency, give_back=self.given.extend
            )
            outlook = Outlook(self.pools, window, Curve(), 1e-3)
            return Balancing(
                mover, outlook, self.event, foreign=self.foreign, auto=auto, clock=lambda: self.now, **pins
            )

        limits = Limits(window, VOCAB, running, 16)
        self.scheduler = Scheduler(
            self.runner, self.pools, self.cache, self.store, limits, self.emitted.append, balancing=make
        )
        self.memory = self.scheduler.memory
        self.submits = {}

    def event(self, kind, fields):
        self.emitted.append({"t": "event", "kind": kind, **fields})

    def submit(self, tokens, max_tokens=4, **fields):
        rid = f"r{len(self.submits)}"
        self.submits[rid] = Submit(rid, list(tokens), max_tokens, **fields)
        self.scheduler.submit(self.submits[rid])
        return rid

    def step(self):
        self.now += 0.3
        busy = self.scheduler.step()
        self.memory.mover.check()
        return busy

    def drain(self, limit=4000):
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("never idle")

    def of(self, rid, kind):
        return [m for m in self.emitted if m["t"] == kind and m["rid"] == rid]

    def check(self, rid):
        """Served, and as if nothing else had been there."""
        assert not self.of(rid, "error"), self.of(rid, "error")
        s = self.submits[rid]
        (done,) = self.of(rid, "done")
        output = [t for m in self.of(rid, "tokens") for t in m["ids"]]
        assert (output, done["reason"]) == fake.cold(s.tokens, s.max_tokens, VOCAB, self.hybrid)

    def kv(self):
        return self.memory.mover.split.kv_slabs


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
def test_a_request_that_fits_only_after_a_move_is_served(hybrid):
    m = Memory(hybrid)
    room = m.pools.pages.capacity * PAGE_TOKENS
    rid = m.submit([1] * (room + 40))
    m.drain()
    m.check(rid)
    assert m.kv() > 6 and m.memory.mover.split.experts_slabs < 12
    (moved, *_) = [e for e in m.emitted if e["t"] == "event" and e["kind"] == "moved"]
    assert moved["reason"] == "a request needs KV"


def test_one_that_grows_over_what_kv_has_is_served_too():
    m = Memory()
    room = m.pools.pages.capacity * PAGE_TOKENS
    rid = m.submit([2] * (room - 8), max_tokens=60)
    m.drain()
    m.check(rid)


def test_two_that_fit_together_only_after_a_move_run_together():
    m = Memory()
    room = m.pools.pages.capacity * PAGE_TOKENS
    rids = [m.submit([i] * (room - 20), max_tokens=20) for i in (1, 2)]
    together = 0
    while m.step():
        together = max(together, len(m.scheduler.running))
    assert together == 2
    for rid in rids:
        m.check(rid)


def test_what_can_never_fit_is_refused_at_once_and_what_may_is_not():
    m = Memory()
    most = (18 - 1) * 4 * PAGE_TOKENS - PAGE_TOKENS  # all slabs but one for a token's experts, without the sentinel
    assert m.scheduler.limits.window_tokens == most
    too_long = m.submit([1] * most, max_tokens=1)
    (error,) = m.of(too_long, "error")
    assert error["code"].startswith("FT-E0414") and not m.scheduler.running
    rid = m.submit([1] * (most - 4), max_tokens=4)
    m.drain()
    m.check(rid)


def test_what_was_set_by_hand_bounds_new_requests_and_not_those_that_run():
    m = Memory()
    room = m.pools.pages.capacity * PAGE_TOKENS
    rid = m.submit([3] * (room - 30), max_tokens=80)
    for _ in range(20):
        m.step()
    assert m.scheduler.running
    m.memory.set_by_hand(2 * 16 - PAGE_TOKENS, None, 18)
    m.memory.consider(m.scheduler.running)
    assert m.scheduler.limits.window_tokens >= 28
    m.drain()
    m.check(rid)
    for _ in range(50):
        m.now += 1.0
        if m.memory.idle() is None:
            break
    assert m.kv() == 2 and m.memory.kv_tokens == 28 and m.scheduler.limits.window_tokens == 28
    refused = m.submit([1] * 30, max_tokens=1)
    assert m.of(refused, "error")[0]["code"].startswith("FT-E0413")  # the prompt alone is longer
    fits = m.submit([1] * 20, max_tokens=8)
    m.drain()
    m.check(fits)


def test_memory_that_another_program_wants_is_given_back_and_taken_again():
    m = Memory()
    first = m.submit([1] * 60)
    m.drain()
    m.foreign.give = 4 * 1024
    m.now += 1.0
    while m.memory.idle() == 0.0:
        pass
    assert m.memory.lent == 4 and m.memory.mover.split.slabs == 14 and 0 < len(m.given) <= 4
    m.foreign.give, m.foreign.take = 0, 4 * 1024
    m.now += 60.0
    again = m.submit([2] * 60)
    m.drain()
    for _ in range(20):
        m.now += 60.0
        m.memory.idle()
    assert m.memory.lent == 0 and m.memory.mover.split.slabs == 18
    m.check(first)
    m.check(again)


def test_a_move_is_made_piece_by_piece_beside_a_decode():
    m = Memory(kv=10, experts=8)
    rids = [m.submit([i] * 40, max_tokens=1, session=f"s{i}") for i in (1, 2)]
    m.drain()
    running = m.submit([4] * 20, max_tokens=60)
    for _ in range(10):
        m.step()
    m.memory.mover.begin(Split(3, 0, 15))
    copies, most = m.runner.copied_pages, 0
    while m.memory.mover.target is not None:
        m.step()
        most, copies = max(most, m.runner.copied_pages - copies), m.runner.copied_pages
    assert 0 < most <= m.pools.pages.cells.per_slab
    m.drain()
    for rid in [*rids, running]:
        m.check(rid)


def test_damage_found_after_a_move_stops_the_loop():
    class Damaged(Exception):
        pass

    def verify():
        raise Damaged

    m = Memory()
    m.experts.verify = verify
    m.submit([1] * 20, max_tokens=60)
    m.step()
    m.memory.mover.begin(Split(7, 0, 11))
    with pytest.raises(Damaged):
        for _ in range(10):
            m.step()


relaxed = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
def test_random_moves_under_load_fail_nobody(hybrid):
    seen = SimpleNamespace(moves=0)

    @relaxed
    @given(data=st.data())
    def run(data):
        m = Memory(hybrid)
        rids = []
        for _ in range(data.draw(st.integers(2, 12))):
            action = data.draw(
                st.sampled_from(["submit", "submit", "move", "move", "steps", "foreign", "hand", "cancel"])
            )
            if action == "submit":
                base = [data.draw(st.integers(0, 4))] * data.draw(st.integers(1, 60))
                tokens = base + data.draw(st.lists(st.integers(0, 4), max_size=30))
                rids.append(m.submit(tokens, data.draw(st.integers(1, 30)), session=data.draw(st.sampled_from("abc"))))
            elif action == "move":
                mover, slabs = m.memory.mover, m.arena.slabs
                state = mover.least().state_slabs + data.draw(st.integers(0, 2)) if hybrid else 0
                experts = data.draw(st.integers(1, slabs - state - 1))
                mover.begin(Split(data.draw(st.integers(1, slabs - state - experts)), state, experts))
                seen.moves += 1
            elif action == "foreign":
                m.foreign.give = data.draw(st.integers(0, 6)) * 1024
                m.foreign.take = 0 if m.foreign.give else 8 * 1024
            elif action == "hand":
                kv = data.draw(st.sampled_from([None, 44, 108]))
                m.memory.set_by_hand(kv, None, 18 + (7 if hybrid else 0))
            elif action == "cancel" and rids:
                m.scheduler.cancel(data.draw(st.sampled_from(rids)))
            for _ in range(data.draw(st.integers(0, 12))):
                m.step()
        m.foreign.give = 0
        m.memory.set_by_hand(None, None, m.arena.slabs)
        m.drain()
        for rid in rids:
            if not any(e["code"].startswith(("FT-E0413", "FT-E0414")) for e in m.of(rid, "error")):
                (done, *_) = m.of(rid, "done") or [None]
                if done is None or done["reason"] != "cancelled":
                    m.check(rid)
        m.cache.check()
        m.cache.evict(1 << 30)
        assert m.pools.pages.used == 0

    run()
    assert seen.moves > 20
