"""What every file of engine/models promises about reuse: whatever was cached, edited, computed ahead, run beside or read
back from disk, the same greedy tokens and the same log-probabilities as a cold run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.cache.checkpoints import CheckpointStore
from engine.cache.hibernate import Disk
from engine.cache.radix import RadixCache
from engine.protocol import EditPoint, Sampling, Submit
from engine.runner.load import Loaded
from engine.scheduler.loop import Limits, Scheduler

WINDOW = 250  # tokens; four such sequences fit
OUTPUT = 5
TOLERANCE = 1e-5


@dataclass
class Engine:
    """A scheduler with an empty cache on a loaded model; `folder` is where prefixes outlive it."""

    loaded: Loaded
    folder: Path | None = None
    checkpoints: int = 12
    emitted: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        pools, store = self.loaded.pools, None
        self.cache = RadixCache(pools.pages, pools.page_tokens)
        if pools.states is not None:
            store = CheckpointStore(pools.states, self.checkpoints * pools.states.state_bytes)
            self.cache = RadixCache(pools.pages, pools.page_tokens, True, store.drop, store.protected)
        self.store = store
        vocab = self.loaded.manifest.geometry.vocab_size
        disk = None if self.folder is None else Disk(self.folder, 1 << 30, self.loaded.manifest.name)
        limits = Limits(WINDOW, vocab, 4, 64)
        self.scheduler = Scheduler(self.loaded.runner, pools, self.cache, store, limits, self.emitted.append, disk=disk)

    def submit(self, rid: str, tokens: list[int], max_tokens: int = OUTPUT, **fields: Any) -> None:
        self.scheduler.submit(Submit(rid, tokens, max_tokens, sampling=Sampling(logprobs=2), **fields))

    def drain(self) -> None:
        while self.scheduler.step():
            pass

    def reply(self, rid: str) -> list[list[Any]]:
        """[token, logprob, [[token, logprob], two most likely]] for each token of the reply."""
        return [m["logprobs"][0] for m in self.emitted if m["t"] == "tokens" and m["rid"] == rid]

    def usage(self, rid: str) -> dict[str, Any]:
        (done,) = (m for m in self.emitted if m["t"] == "done" and m["rid"] == rid)
        return dict(done["usage"])

    def stop(self) -> None:
        self.scheduler.stop(0.0)
        self.scheduler.run(lambda message: None)
        self.cache.evict(1 << 30)
        assert self.loaded.pools.pages.used == 0
        assert self.loaded.pools.states is None or self.loaded.pools.states.used == 0


def same(reply: list[list[Any]], cold: list[list[Any]]) -> None:
    assert [entry[0] for entry in reply] == [entry[0] for entry in cold]
    for mine, theirs in zip(reply, cold, strict=True):
        assert abs(mine[1] - theirs[1]) <= TOLERANCE
        for (_, a), (_, b) in zip(mine[2], theirs[2], strict=True):
            assert abs(a - b) <= TOLERANCE


@pytest.fixture(scope="module", params=["exact", "small"])
def loaded(checkpoint, request) -> Loaded:
    return checkpoint.load(request.param)


def text(rng: random.Random, checkpoint, n: int) -> list[int]:
    return [rng.randrange(checkpoint.vocab) for _ in range(n)]


def test_resumed_equals_cold_over_edits_four_at_once_and_restarts(checkpoint, loaded, tmp_path):
    rng = random.Random(1)
    head = text(rng, checkpoint, 50)
    lines = [head + text(rng, checkpoint, rng.randrange(5, 40)) for _ in range(4)]
    engine, asked, replies, usages = Engine(loaded, tmp_path), {}, {}, {}
    for turn in range(6):
        for n, line in enumerate(lines):
            points = [EditPoint(50, "head"), EditPoint(min(len(line), 60), "turn"), EditPoint(len(line), "prompt")]
            engine.submit(f"{turn}-{n}", line, session=f"s{n}", edit_points=points)
            asked[f"{turn}-{n}"] = line
        engine.drain()
        for n, line in enumerate(lines):
            rid = f"{turn}-{n}"
            replies[rid], usages[rid] = engine.reply(rid), engine.usage(rid)
            grown = line + [entry[0] for entry in replies[rid]] + text(rng, checkpoint, rng.randrange(1, 25))
            if rng.random() < 0.4:
                cut = rng.randrange(40, len(grown))
                grown = grown[:cut] + text(rng, checkpoint, rng.randrange(1, 20))
            lines[n] = grown[: WINDOW - OUTPUT]
            if rng.random() < 0.5:
                guess = lines[n][: -rng.randrange(1, 6)]
                engine.submit(f"g{turn}-{n}", guess, 0, session=f"s{n}", priority="background")
        engine.drain()
        if turn % 2:
            engine.stop()
            engine = Engine(loaded, tmp_path)
    engine.stop()
    for tier in ("ram", "disk"):
        assert sum(u["cached"] for u in usages.values() if u["tier"] == tier) > 200, f"{tier} was not tested"
    assert sum(u["anticipated"] for u in usages.values()) > 0
    cold = Engine(loaded)
    for rid, tokens in asked.items():
        cold.submit(rid, tokens)
        cold.drain()
        cold.cache.evict(1 << 30)
        assert cold.usage(rid)["cached"] == 0
        same(replies[rid], cold.reply(rid))
    cold.stop()


def test_pages_and_states_survive_the_trip_bit_for_bit(checkpoint, loaded):
    pools, runner = loaded.pools, loaded.runner
    engine = Engine(loaded)
    tokens = text(random.Random(3), checkpoint, 70)
    engine.submit("a", tokens)
    engine.drain()
    nodes = list(engine.cache.nodes())
    (copy,) = pools.pages.alloc(1)
    for node in nodes:
        held = node.end - node.start
        data = runner.read_page(node.page, held)
        assert any(data)
        runner._page(copy).fill_(0xFF)  # what else lies in the page is not read
        runner.write_page(copy, data, held)
        assert runner.read_page(copy, held) == data
        with pytest.raises(ValueError, match="bytes"):
            runner.write_page(copy, data[:-1], held)
    pools.pages.release(copy)
    if pools.states is not None:
        state = pools.states.alloc()
        for node in nodes:
            for checkpoint_ in node.checkpoints.values():
                data = runner.read_state(checkpoint_.state)
                assert any(data)
                runner.write_state(state, data)
                assert runner.read_state(state) == data
        with pytest.raises(ValueError, match="bytes"):
            runner.write_state(state, b"")
        pools.states.release(state)
    engine.stop()
