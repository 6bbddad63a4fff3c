"""What more or fewer checkpoints would do, told from one run, against runs that have them."""

from __future__ import annotations

import math
import random

from engine.cache.checkpoints import CheckpointStore
from engine.memory.balance.replays import ReplayCurve
from engine.scheduler.replays import Replays

LEARNT_AT = 12
CAPACITIES = (4, 6, 8, 10, 12, 14, 16, 20, 24, 32)
TURNS = 240


class Watched(Replays):
    """Notes what every request really computes again."""

    def __init__(self, *parts) -> None:
        super().__init__(*parts)
        self.curve = ReplayCurve(half_life=math.inf)
        self.cached, self.again = [], []

    def enters(self, request, match) -> None:
        if match.tokens:
            self.cached.append(match.tokens)
            self.again.append(match.tokens - match.resume_at)
        super().enters(request, match)


def played(bench, checkpoints: int) -> Watched:
    """Six sessions whose turns come in a random order; one in three changes what it sent before."""
    b, rng = bench(hybrid=True, pages=1500, checkpoints=checkpoints, vocab=400, chunk_tokens=64), random.Random(7)
    watched = Watched(b.cache, b.store, b.pools.states)
    b.scheduler._residency.enters = watched.enters
    head = [rng.randrange(1, 400) for _ in range(24)]
    lines = {f"s{i}": list(head) for i in range(6)}
    for _ in range(TURNS):
        name = rng.choice(list(lines))
        line = lines[name]
        if rng.random() < 1 / 3 and len(line) > 40:
            line = line[: rng.randrange(24, len(line))]
        line = line + [rng.randrange(1, 400) for _ in range(rng.randrange(4, 30))]
        points = [(24, "head"), (len(line), "prompt")]
        rid = b.submit(line, 3, session=name, points=points)
        b.drain()
        line = line + b.output(rid)
        lines[name] = line if len(line) < 300 else line[:60]
    b.check()
    return watched


def test_the_curve_of_one_run_is_near_what_other_runs_compute_again(bench) -> None:
    learnt = played(bench, LEARNT_AT)
    curve, cached = learnt.curve, sum(learnt.cached) / len(learnt.cached)
    assert curve.tokens(LEARNT_AT) <= 1.1 * sum(learnt.again) / len(learnt.again) + 1
    told, found = [], []
    for capacity in CAPACITIES:
        other = played(bench, capacity)
        told.append(curve.tokens(capacity) / cached)
        found.append(sum(other.again) / len(other.again) / cached)
    assert all(abs(a - b) < 0.1 for a, b in zip(told, found, strict=True)), (told, found)


def test_what_is_given_up_with_its_kv_saves_nothing(bench) -> None:
    b = bench(hybrid=True, pages=400, checkpoints=4, vocab=400)
    replays = Replays(b.cache, b.store, b.pools.states)
    b.scheduler._residency.enters = replays.enters
    assert isinstance(b.store, CheckpointStore)
    for start in range(0, 360, 40):
        b.ask([start + i + 1 for i in range(40)], points=[(20, "turn"), (40, "prompt")])
    gone = b.store.evictions
    assert gone > 4
    first = [i + 1 for i in range(40)]
    before = replays.curve.requests
    b.ask([*first, 399], points=[(40, "prompt")])
    assert replays.curve.requests == before + 1
    assert replays.curve.tokens(4 + gone) < replays.curve.tokens(4), "with more it would have been there"
    b.cache.evict(1 << 20)
    b.ask([*first, 398], points=[(40, "prompt")])
    assert replays.curve.requests == before + 1, "nothing of it was cached"
