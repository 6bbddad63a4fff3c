"""The scheduler on a real (tiny, random) hybrid model: whatever was cached, resumed or run beside, the same tokens."""

import json
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

VOCAB = 1000  # prompts use few token ids, so that edits collide


@pytest.fixture(scope="module")
def engine(models_dir):
    settings = Settings(kv_tokens=2048, max_running=4, chunk_tokens=96, checkpoint_bytes=400_000)
    directory = models_dir / "tiny-hybrid"
    plan = plan_model(directory, settings).require()
    config = WorkerConfig(directory, directory / "unused.sock", 2, settings)
    return plan, load_engine(config, plan, lambda phase, done, total: None)


class Session:
    """One scheduler on the engine, with an empty cache."""

    def __init__(self, engine, chunk_tokens=96):
        self.plan, loaded = engine
        self.pools = loaded.pools
        self.store = CheckpointStore(self.pools.states, 10 * self.pools.states.state_bytes)
        self.cache = RadixCache(self.pools.pages, self.pools.page_tokens, True, self.store.drop, self.store.protected)
        self.emitted = []
        self.scheduler = Scheduler(
            loaded.runner,
            self.pools,
            self.cache,
            self.store,
            Limits(self.plan.window_tokens, loaded.vocab_size, 4, chunk_tokens),
            self.emitted.append,
            loaded.matcher,
            loaded.expert_counts,
        )

    def submit(self, rid, tokens, max_tokens=6, points=(), **fields):
        self.scheduler.submit(Submit(rid, tokens, max_tokens, edit_points=list(points), **fields))

    def drain(self):
        while self.scheduler.step():
            pass

    def output(self, rid):
        return [t for m in self.emitted if m["t"] == "tokens" and m["rid"] == rid for t in m["ids"]]

    def usage(self, rid):
        (done,) = (m for m in self.emitted if m["t"] == "done" and m["rid"] == rid)
        return done["usage"]

    def close(self):
        self.cache.evict(1 << 30)
        assert self.pools.pages.used == 0 and self.pools.states.used == 0
        self.pools.check()


def cold(engine, tokens, chunk_tokens=96, **fields):
    s = Session(engine, chunk_tokens)
    s.submit("cold", tokens, **fields)
    s.drain()
    assert s.usage("cold")["cached"] == 0
    output = s.output("cold")
    s.close()
    return output


def test_resumed_equals_cold_over_edits_concurrency_and_eviction(engine):
    rng = random.Random(11)

    def text(n):
        return [rng.randrange(VOCAB) for _ in range(n)]

    s = Session(engine)
    head = text(70)
    lines = [head + text(rng.randrange(10, 150)) for _ in range(3)]
    asked, cached = {}, 0
    for turn in range(5):
        for n, line in enumerate(lines):
            rid = f"{turn}-{n}"
            points = [EditPoint(70, "head"), EditPoint(len(line), "prompt")]
            s.submit(rid, line, points=points, session=f"s{n}", sampling=Sampling(temperature=0.0))
            asked[rid] = line
        s.drain()
        for n, line in enumerate(lines):
            cached += s.usage(f"{turn}-{n}")["cached"]
            grown = line + s.output(f"{turn}-{n}") + text(rng.randrange(1, 90))
            if rng.random() < 0.4:
                cut = rng.randrange(60, len(grown))
                grown = grown[:cut] + text(rng.randrange(1, 60))
            lines[n] = grown
    assert cached > 1000, "nothing was resumed, so nothing was tested"
    outputs = {rid: s.output(rid) for rid in asked}
    s.close()
    for rid, tokens in asked.items():
        assert outputs[rid] == cold(engine, tokens), rid


def test_chunk_size_changes_nothing(engine):
    tokens = [i * 37 % VOCAB for i in range(300)]
    expected = cold(engine, tokens, 96, max_tokens=12)
    for chunk in (1 << 12, 33, 7):
        assert cold(engine, tokens, chunk, max_tokens=12) == expected


def test_a_seeded_draw_does_not_depend_on_the_batch(engine):
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=5)
    tokens = [i * 11 % VOCAB for i in range(40)]
    alone = cold(engine, tokens, sampling=sampling)
    s = Session(engine)
    for n in range(3):
        s.submit(f"other{n}", [n + 1] * 50, 9, sampling=Sampling(temperature=1.0))
    s.submit("drawn", tokens, sampling=sampling)
    s.drain()
    assert s.output("drawn") == alone
    s.close()


def test_a_grammar_is_obeyed(engine, models_dir):
    from tokenizers import Tokenizer

    grammar = json.dumps({"grammars": [{"lark_grammar": 'start: "red" | "green"'}]})
    tokenizer = Tokenizer.from_file(str(models_dir / "tiny-hybrid" / "tokenizer.json"))
    for seed in range(4):
        output = cold(
            engine, [seed + 3, 9, 27], max_tokens=20, grammar=grammar, sampling=Sampling(temperature=1.0, seed=seed)
        )
        assert tokenizer.decode(output) in ("red", "green")


def test_logprobs_and_forced_tokens_come_from_a_real_forward(engine):
    s = Session(engine)
    s.submit("forced", [5, 6, 7], 10, forced=[8, 9, 10], sampling=Sampling(logprobs=2))
    s.drain()
    assert s.output("forced") == [8, 9, 10]
    entries = [m["logprobs"][0] for m in s.emitted if m["t"] == "tokens"]
    assert all(logprob < 0 and len(top) == 2 for _, logprob, top in entries)
    s.close()


def test_a_prefill_that_is_given_up_again_and_again_ends_as_if_it_had_not_been(engine):
    rng = random.Random(3)
    tokens = [rng.randrange(VOCAB) for _ in range(700)]
    s, attempts, replayed = Session(engine), 0, []
    while attempts < 20:
        rid = f"r{attempts}"
        s.submit(rid, tokens, session="s", points=[EditPoint(50, "head"), EditPoint(699, "prompt")])
        s.scheduler.step()
        if s.scheduler.running[0].decoding:
            s.drain()
            break
        s.scheduler.post({"t": "cancel", "rid": rid})  # heard between two layers
        s.scheduler.step()
        replayed.append(s.usage(rid)["replayed"])
        attempts += 1
    assert attempts == 700 // 96 and max(replayed) < 96 // 2, "a chunk further in each attempt"
    output = s.output(rid)
    s.close()
    assert output == cold(engine, tokens)
