"""The clairvoyant schedule against every schedule there is, and interpolated misses against what was replayed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bench.memory.clairvoyant import BLOCK, Clairvoyant, Misses, blocks
from engine.bench.memory.trace import Shape, Throttle, Turn

SHAPE = replace(Shape(), slabs=60)  # 80 tokens or two slots a slab
THROTTLE = Throttle(fill_bytes_per_s=2.65e9, step_s=5e-3, prefill_tokens_per_s=500.0, copy_bytes_per_s=1e10)
STEPS = 4000
MISSES = Misses.of({slots: [max(0, 40 - slots // 3)] * STEPS for slots in range(0, 121, 10)})


def cost(turns: list[Turn], keeps: list[bool]) -> float | None:
    """Seconds when the KV of the line of turn i is kept afterwards as `keeps[i]` says, until its next turn."""
    ends: dict[str, int] = {}
    kept: set[str] = set()
    seconds, step = 0.0, 0
    for turn, keep in zip(turns, keeps, strict=True):
        if turn.line not in kept:
            seconds += turn.shared / THROTTLE.prefill_tokens_per_s
        resting = sum(-(-ends[line] // 80) for line in kept - {turn.line})
        for at in range(0, turn.output, BLOCK):
            n = min(BLOCK, turn.output - at)
            slabs = SHAPE.slabs - resting - -(-(turn.prompt + at + n) // 80)
            if slabs < 4:
                return None
            seconds += n * THROTTLE.step_s + MISSES.between(step, step + n, 2 * slabs) * SHAPE.expert_bytes / 2.65e9
            step += n
        ends[turn.line] = turn.prompt + turn.output
        kept = kept | {turn.line} if keep else kept - {turn.line}
    return seconds


@st.composite
def traces(draw) -> list[Turn]:
    ends: dict[str, int] = {}
    made = []
    for line in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=6)):
        shared = ends.get(line, 0)
        prompt = shared + draw(st.integers(1, 600))
        made.append(Turn(line, prompt, shared, draw(st.integers(1, 150)), 1.0))
        ends[line] = prompt + made[-1].output
    return made


@settings(max_examples=150, deadline=None)
@given(traces())
def test_nothing_is_cheaper_than_the_clairvoyant(turns):
    every = [c for keeps in product([True, False], repeat=len(turns)) if (c := cost(turns, list(keeps))) is not None]
    assert Clairvoyant(SHAPE, THROTTLE, MISSES).best(turns).seconds == pytest.approx(min(every))


def test_what_has_no_room_is_said():
    with pytest.raises(ValueError, match="no room"):
        Clairvoyant(SHAPE, THROTTLE, MISSES).best([Turn("a", 5000, 0, 10, 1.0)])
    with pytest.raises(ValueError, match="no room"):
        Clairvoyant(SHAPE, THROTTLE, MISSES).best([Turn("a", 3000, 0, 10, 1.0, lent=0.5)])


def test_misses_between_replayed_sizes_fall_geometrically():
    misses = Misses.of({100: [8] * 10, 200: [2] * 10, 300: [0] * 10})
    assert misses.between(0, 10, 100) == pytest.approx(80) and misses.between(2, 7, 200) == pytest.approx(10)
    assert misses.between(0, 10, 150) == pytest.approx(40)
    assert misses.between(0, 10, 50) == pytest.approx(80) and misses.between(0, 10, 999) < 0.01


def test_blocks_cover_every_step_once():
    turns = [Turn("a", 100, 0, 150, 1.0), Turn("a", 400, 250, 64, 1.0)]
    assert list(blocks(turns)) == [(100, 0, 64), (164, 64, 128), (228, 128, 150), (400, 150, 214)]
    static = Clairvoyant(SHAPE, THROTTLE, MISSES).static(turns, kv_slabs=20)
    assert [at for at, _ in static] == [100, 164, 228, 400]
    misses = 40 - 80 // 3
    assert static[0][1] == pytest.approx(64 * (5e-3 + misses * SHAPE.expert_bytes / 2.65e9), rel=0.02)
