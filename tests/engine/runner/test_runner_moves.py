"""A real model whose memory changes hands while it serves: the same tokens as when nothing ever moved."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.experts.audit import ExpertsDamaged
from engine.memory import planner
from engine.memory.hardware import resident_bytes
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.memory.split import Split
from engine.protocol import EditPoint, Submit
from engine.scheduler.loop import Limits, Scheduler
from engine.scheduler.sharing import share_out
from engine.worker import Engine, WorkerConfig
from engine.worker_engine import load_engine

VOCAB = 1000
TIERS = {
    "emulated": {"device": "emulated", "moe_backend": "offload", "moe_slots": 24},
    "emulated, partly in place": {"device": "emulated", "moe_backend": "hybrid", "moe_slots": 24},
    "disk": {"host_memory": 24 * 24576},
}


class Served:
    """One scheduler on the tiny model, in slabs so small that every tenant has several."""

    def __init__(self, models_dir: Path, monkeypatch: pytest.MonkeyPatch, tier: str, room: int = 12) -> None:
        monkeypatch.setattr(planner, "MIN_SLAB_BYTES", 120 << 10)
        settings = Settings(kv_tokens=1536, max_running=3, chunk_tokens=64, checkpoint_bytes=400_000, **TIERS[tier])
        directory = models_dir / "tiny-hybrid"
        plan = replace(plan_model(directory, settings).require(), room_slabs=room)
        options = Options("f32", 1000.0, 2000.0)
        config = WorkerConfig(directory, directory / "unused.sock", 2, settings, options)
        self.engine: Engine = load_engine(config, plan, lambda phase, done, total: None)
        pools = self.pools = self.engine.pools
        self.store = CheckpointStore(pools.states, plan.checkpoints * pools.states.state_bytes)
        self.cache = RadixCache(pools.pages, pools.page_tokens, True, self.store.drop, self.store.protected)
        self.emitted: list[dict] = []
        free = replace(settings, kv_tokens=None, moe_slots=None)
        self.scheduler = Scheduler(
            self.engine.runner,
            pools,
            self.cache,
            self.store,
            Limits(plan.window_tokens, self.engine.vocab_size, 3, 64),
            self.emitted.append,
            balancing=share_out(
                plan,
                free,
                self.engine.experts,
                self.engine.runner,
                pools,
                self.cache,
                self.store,
                lambda kind, fields: self.emitted.append({"t": "event", "kind": kind, **fields}),
                give_back=self.engine.give_back,
            ),
        )
        self.memory = self.scheduler.memory

    def serve(self, asked: dict[str, Submit], between=lambda: None) -> dict[str, list[int]]:
        for submit in asked.values():
            self.scheduler.submit(submit)
        while self.scheduler.step():
            between()
            self.memory.mover.check()
            self.cache.check()
            self.store.check()
        failed = [m for m in self.emitted if m["t"] == "error"]
        assert not failed, failed
        return {
            rid: [t for m in self.emitted if m["t"] == "tokens" and m["rid"] == rid for t in m["ids"]] for rid in asked
        }

    def usage(self, rid: str) -> dict:
        (done,) = (m for m in self.emitted if m["t"] == "done" and m["rid"] == rid)
        return done["usage"]

    def some_split(self, rng: random.Random) -> Split:
        mover, slabs = self.memory.mover, self.pools.arena.slabs
        least, most_experts = mover.least(), mover.slabs_of(mover.most_slots())
        state = max(least.state_slabs, self.memory.start.state_slabs + rng.randrange(-1, 2))
        kv = rng.randint(1 if rng.random() < 0.1 else 5, 12)
        experts = rng.randint(least.experts_slabs, min(most_experts, slabs - state - kv))
        return Split(kv, state, experts)


def conversation(rng: random.Random, turns: int) -> list[list[int]]:
    """Prompts of a session that is edited now and then, without the answers."""
    line = [rng.randrange(VOCAB) for _ in range(70)]
    made = []
    for _ in range(turns):
        line = line + [rng.randrange(VOCAB) for _ in range(rng.randrange(5, 80))]
        if rng.random() < 0.3:
            line = line[: rng.randrange(60, len(line))] + [rng.randrange(VOCAB) for _ in range(20)]
        made.append(line)
    return made


def submits(rng: random.Random, turn: int, lines: list[list[list[int]]]) -> dict[str, Submit]:
    made = {}
    for n, prompts in enumerate(lines):
        tokens = prompts[turn]
        points = [EditPoint(60, "head"), EditPoint(len(tokens), "prompt")]
        made[f"{turn}-{n}"] = Submit(f"{turn}-{n}", tokens, 8, session=f"s{n}", edit_points=points)
    return made


@pytest.fixture(scope="module")
def expected(models_dir) -> dict[str, list[int]]:
    """Every answer with nothing cached and nothing moved."""
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        rng = random.Random(7)
        lines = [conversation(rng, 5) for _ in range(3)]
        for turn in range(5):
            for rid, submit in submits(rng, turn, lines).items():
                served = Served(models_dir, patch, "emulated") if not found else served  # noqa: F821
                found |= served.serve({rid: submit})
                served.cache.evict(1 << 30)
        return found


@pytest.mark.parametrize("tier", TIERS)
def test_answers_do_not_depend_on_any_move(models_dir, monkeypatch, tier, expected):
    served = Served(models_dir, monkeypatch, tier)
    source, rng = random.Random(7), random.Random(3)
    lines = [conversation(source, 5) for _ in range(3)]
    mover = served.memory.mover

    def between() -> None:
        if mover.target is None and rng.random() < 0.6:
            mover.begin(served.some_split(rng))  # the loop goes on with it
        elif mover.target is None and rng.random() < 0.1:
            mover.defragment(0.01)

    for turn in range(5):
        asked = submits(source, turn, lines)
        got = served.serve(asked, between)
        for rid in asked:
            assert got[rid] == expected[rid], rid
    moves = [m for m in served.emitted if m["t"] == "event" and m["kind"] == "moved"]
    assert len(moves) > 10 and any(m["moved_pages"] for m in moves) and any(m["dropped_experts"] for m in moves)
    assert any(m["moved_states"] for m in moves)
    cached = [served.usage(f"{turn}-{n}")["cached"] for turn in range(1, 5) for n in range(3)]
    assert sum(n > 0 for n in cached) > 3, "turns stay warm over moves that leave room"
    served.cache.evict(1 << 30)
    assert served.pools.pages.used == 0 and served.pools.states.used == 0


@pytest.mark.parametrize("tier", ["emulated", "disk"])
def test_twenty_moves_and_then_a_changed_byte(models_dir, monkeypatch, tier):
    served = Served(models_dir, monkeypatch, tier)
    rng, mover = random.Random(1), served.memory.mover
    served.serve({"a": Submit("a", [i * 7 % VOCAB for i in range(200)], 8)})
    for i in range(20):
        mover.apply(served.some_split(rng))
        served.serve({f"b{i}": Submit(f"b{i}", [i, 5, 6, *range(30)], 3)})
    executor = served.engine.experts.slots
    assert executor.audit.checked >= 20
    table = executor.table
    slot = int(table.holder.argmax())
    arena = served.engine.runner._arena
    arena[served.pools.slots.offset(slot) + 100] ^= 1
    with pytest.raises(ExpertsDamaged, match=f"slot {slot} and its source"):
        for _ in range(len(table.holder)):
            executor.verify()


def test_memory_given_back_leaves_the_process(models_dir, monkeypatch):
    served = Served(models_dir, monkeypatch, "emulated", room=600)
    mover, arena = served.memory.mover, served.engine.runner._arena
    whole = Split(served.pools.arena.slabs - mover.split.state_slabs - 4, mover.split.state_slabs, 4)
    mover.apply(whole)
    pages = served.pools.pages.alloc(served.pools.pages.free)
    for page in pages:
        offset = served.pools.pages.offset(page)
        arena[offset : offset + served.pools.pages.page_bytes] = 7
    full = resident_bytes()
    for page in pages:
        served.pools.pages.release(page)
    slabs = served.pools.arena.slabs // 2
    moved = mover.apply(Split(whole.kv_slabs - slabs, whole.state_slabs, whole.experts_slabs))
    assert moved.complete
    freed = full - resident_bytes()
    assert freed > 0.8 * slabs * served.pools.arena.slab_bytes, freed
    assert mover.untouched_bytes <= moved.after.slabs * served.pools.arena.slab_bytes
