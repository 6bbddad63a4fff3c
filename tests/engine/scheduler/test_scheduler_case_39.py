"""Sessions longer than the memory for checkpoints: much new text turn after turn, and turns without end under a cap."""

from __future__ import annotations

import random

import pytest

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.protocol import EditPoint, Sampling, Submit
from engine.scheduler.loop import Limits, Scheduler
from engine.worker import WorkerConfig
from engine.worker_engine import load_engine

NEW, TURNS = 23_000, 5


def text(seed: int, n: int, vocab: int = 5) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(vocab) for _ in range(n)]


def under_its_cap(store: CheckpointStore, pool, live: int) -> list[int]:
    """Watch every state that is taken: the store makes room first, and is never above its cap, not even for a moment. Returns a
    list that gets the number of states in use after each."""
    alloc, used = pool.alloc, []

    def watched() -> int:
        assert store.bytes <= store.cap_bytes
        state = alloc()
        assert pool.used <= store.cap_bytes // pool.state_bytes + live, "more than the cap and the live states"
        used.append(pool.used)
        return state

    reserve = store.reserve

    def reserved(side: bool, last=None) -> int | None:
        state = reserve(side, last)
        assert store.bytes <= store.cap_bytes
        return state

    pool.alloc, store.reserve = watched, reserved
    return used


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
def test_case_39_five_turns_of_23_000_new_tokens(bench, hybrid):
    b = bench(hybrid, pages=30_500, checkpoints=4, chunk_tokens=2048)
    used = under_its_cap(b.store, b.pools.states, 3) if hybrid else []
    line = text(1, 600)
    for turn in range(TURNS):
        line += text(10 + turn, NEW)
        points = [(600, "head", 2, "head.end"), (len(line) - 2, "prompt", 2, "prompt.end")]
        reply, usage = b.ask(line, session="s", max_tokens=2, points=points)
        if turn:
            assert (usage["new"], usage["replayed"]) == (NEW + 1, 0), f"turn {turn + 1}"
        line += reply
    b.check()
    assert not hybrid or (used and max(used) <= 4 + 1 and b.store.evictions)


def test_case_39_two_hundred_turns_under_a_cap(bench):
    """Memory for pages is short as well: what the line itself no longer uses is given up, and never the line."""
    b = bench(True, pages=2800 // 4, checkpoints=8)
    used = under_its_cap(b.store, b.pools.states, 3)
    line, head = text(2, 200), 100
    for turn in range(200):
        points = [(head, "head", 2, "head.end"), (len(line) - 2, "prompt", 2, "prompt.end")]
        reply, usage = b.ask(line, session="s", max_tokens=2, points=points)
        assert turn == 0 or (usage["new"], usage["replayed"]) == (11, 0), f"turn {turn + 1}"
        line = [*line, *reply, *text(100 + turn, 10)]
        if turn % 7 == 0:  # another session uses its share
            other = text(1000 + turn, 120)
            b.ask(other, session=f"o{turn}", max_tokens=1, points=[(60, "head", 2, "head.end")])
    b.check()
    assert len(used) > 200 and max(used) <= 8 + 1 and b.store.evictions > 100


VOCAB, CAP, WINDOW = 900, 4, 6144


@pytest.fixture(scope="module")
def model(models_dir):
    directory = models_dir / "tiny-hybrid"
    settings = Settings(kv_tokens=WINDOW, max_running=1, chunk_tokens=256, checkpoint_bytes=400_000)
    plan = plan_model(directory, settings).require()
    return plan, load_engine(WorkerConfig(directory, directory / "no.sock", 2, settings), plan, lambda *_: None)


class Real:
    """The scheduler on a real (tiny, random) hybrid model whose store holds `CAP` checkpoints."""

    def __init__(self, model) -> None:
        plan, loaded = model
        self.pools, self.emitted, self.count = loaded.pools, [], 0
        states = self.pools.states
        self.store = CheckpointStore(states, CAP * states.state_bytes)
        self.cache = RadixCache(self.pools.pages, self.pools.page_tokens, True, self.store.drop, self.store.protected)
        limits = Limits(plan.window_tokens, loaded.vocab_size, 1, 256)
        self.scheduler = Scheduler(
            loaded.runner, self.pools, self.cache, self.store, limits, self.emitted.append, loaded.matcher
        )

    def ask(self, tokens: list[int], max_tokens: int, head: int = 0) -> tuple[list[int], dict]:
        self.count += 1
        rid = f"r{self.count}"
        points = [EditPoint(head, "head"), EditPoint(len(tokens), "prompt")] if head else []
        sampling = Sampling(temperature=0.0)
        self.scheduler.submit(Submit(rid, list(tokens), max_tokens, "s", points, sampling))
        while self.scheduler.step():
            pass
        (done,) = (m for m in self.emitted if m["t"] == "done" and m["rid"] == rid)
        return [t for m in self.emitted if m["t"] == "tokens" and m["rid"] == rid for t in m["ids"]], done["usage"]

    def close(self) -> None:
        self.store.check()
        self.cache.evict(1 << 30)
        assert self.pools.pages.used == self.pools.states.used == 0


@pytest.mark.parametrize(("turns", "new"), [(TURNS, 1000), (60, 30)], ids=["much new text", "many turns"])
def test_case_39_on_a_real_model(model, turns, new, monkeypatch):
    real = Real(model)
    for owner, name in ((real.pools.states, "alloc"), (real.store, "reserve")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    used = under_its_cap(real.store, real.pools.states, 1)
    line, asked = text(3, 150, VOCAB), []
    for turn in range(turns):
        line += text(20 + turn, new, VOCAB)
        reply, usage = real.ask(line, 3, head=150)
        assert turn == 0 or (usage["new"], usage["replayed"]) == (new + 1, 0), f"turn {turn + 1}"
        asked.append((list(line), reply))
        line += reply
    real.close()
    assert max(used) <= CAP + 1 and real.store.evictions > 0
    for prompt, reply in asked[:: max(1, turns // 5)]:
        cold = Real(model)
        assert cold.ask(prompt, 3) == (reply, {**cold.emitted[-1]["usage"], "cached": 0})
        cold.close()
