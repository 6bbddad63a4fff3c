"""Curves of misses against replay of the same routing, and against stack distances counted the slow way."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.experts.curves import Curve
from engine.experts.policy import Frequency
from engine.experts.record import Recorder, Stream, load_stream
from engine.experts.replay import DECODE_ROWS, replay

SMALL = Path(__file__).parent / "streams" / "smollm2-128x8.npz"
KEPT = Path(__file__).parents[3] / "bench" / "streams" / "smollm2-128x8.npz"
LAYERS, EXPERTS, TOP_K = 3, 7, 2


@cache
def stream_at(path: Path) -> Stream:
    return load_stream(path)


def curve_of(stream: Stream, policy: str, half_life: float = math.inf) -> Curve:
    curve = Curve(stream.layers, stream.experts, policy, half_life)
    for layer, ids in stream:
        curve.note(layer, ids)
    return curve


def made(steps: list[list[list[int]]]) -> Stream:
    recorder = Recorder(LAYERS, EXPERTS, "by hand")
    for rows in steps:
        for layer in range(LAYERS):
            recorder.note(layer, (np.array(rows, dtype=np.int32) + 2 * layer) % EXPERTS)
    return recorder.stream()


row = st.lists(st.integers(0, EXPERTS - 1), min_size=TOP_K, max_size=TOP_K, unique=True)
streams = st.lists(st.lists(row, min_size=1, max_size=20), min_size=1, max_size=40).map(made)


def distances(stream: Stream) -> list[float]:
    """How many keys were used since, of every counted access; inf for the first use of a key."""
    recent: list[tuple[int, int]] = []  # latest first
    found: list[float] = []
    for layer, ids in stream:
        keys = sorted({(layer, int(expert)) for expert in ids.reshape(-1)})
        if len(ids) <= DECODE_ROWS:
            found += [recent.index(key) if key in recent else math.inf for key in keys]
        for key in keys:
            if key in recent:
                recent.remove(key)
            recent.insert(0, key)
    return found


def ranks(stream: Stream) -> list[tuple[float, float]]:
    """The least and the most keys that may be worth more, of every counted access, by the slot table's own policy: the
    curve tells worths apart to a 64th of a half-life."""
    policy = Frequency(stream.layers, stream.experts)
    found: list[tuple[float, float]] = []
    for layer, ids in stream:
        experts = np.unique(ids).astype(np.int64)
        if len(ids) <= DECODE_ROWS:
            for worth in policy.worth[layer, experts]:
                least, most = (policy.worth > worth + 1 / 64).sum(), (policy.worth >= worth - 1 / 64).sum() - 1
                found.append((math.inf, math.inf) if worth == -math.inf else (float(least), float(most)))
        policy.touch(layer, ids, experts)
    return found


@settings(max_examples=150, deadline=None)
@given(streams)
def test_recency_distances_are_exact_at_every_capacity(stream):
    curve, exact = curve_of(stream, "lru"), distances(stream)
    steps = sum(len(ids) <= DECODE_ROWS for _, ids in stream) // LAYERS
    assert curve.steps == steps
    for slots in range(LAYERS * EXPERTS + 1):
        assert curve.misses(slots) * max(1, steps) == pytest.approx(sum(d >= slots for d in exact))
        assert curve.rate(slots) == pytest.approx(sum(d >= slots for d in exact) / max(1, len(exact)))


@settings(max_examples=150, deadline=None)
@given(streams)
def test_frequency_distances_are_ranks_by_worth(stream):
    curve, exact = curve_of(stream, "frequency"), ranks(stream)
    steps = max(1, curve.steps)
    newcomers = 1 + 1.5 * curve.misses(0) / LAYERS  # slots that are taken by what has just come in, at most
    for slots in range(LAYERS * EXPERTS + 1):
        least = sum(low >= slots for low, _ in exact)
        most = sum(high >= slots - newcomers for _, high in exact)
        assert least - 1e-6 <= curve.misses(slots) * steps <= most + 1e-6


def test_stamps_that_run_out_are_numbered_anew():
    source = np.random.default_rng(1)
    recorder = Recorder(2, 16)
    for _ in range(3000):  # 2 layers of 2 experts: many times the axis
        for layer in range(2):
            recorder.note(layer, source.permutation(16)[None, :2].astype(np.int32))
    stream = recorder.stream()
    curve, exact = curve_of(stream, "lru"), distances(stream)
    for slots in range(33):
        assert curve.misses(slots) * 3000 == pytest.approx(sum(d >= slots for d in exact))


@pytest.mark.parametrize("policy", ["lru", "frequency"])
def test_a_curve_agrees_with_replay_at_ten_capacities(policy):
    """One per cent, or ten misses where they are few: which of several equals stays is chance."""
    stream = stream_at(SMALL)
    curve = curve_of(stream, policy)
    for slots in np.linspace(0.06, 0.95, 10) * stream.layers * stream.experts:
        counted = replay(stream, int(slots), policy)
        few = 10 / counted.accesses
        assert curve.rate(int(slots)) == pytest.approx(counted.rate, rel=0.01, abs=few), int(slots)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lru", "frequency"])
def test_the_same_over_the_whole_recording(policy):
    stream = stream_at(KEPT)
    curve = curve_of(stream, policy)
    for slots in np.linspace(0.08, 0.75, 10) * stream.layers * stream.experts:
        counted = replay(stream, int(slots), policy)
        assert curve.rate(int(slots)) == pytest.approx(counted.rate, rel=0.01), int(slots)


def test_what_was_long_ago_counts_less():
    curve = Curve(1, 64, "lru", half_life_steps=20)
    for i in range(400):  # eight experts in turn: with eight slots nothing misses
        curve.note(0, np.array([[i % 8]], dtype=np.int32))
    assert curve.misses(8) < 0.01 < 0.9 < curve.misses(7)
    for i in range(400):
        curve.note(0, np.array([[i % 32]], dtype=np.int32))
    assert curve.misses(8) > 0.9 and curve.misses(32) < 0.01
    assert curve.steps == 800


def test_a_recording_of_any_length_stays_in_range():
    curve = Curve(1, 8, "frequency", half_life_steps=0.5)  # weights double twice a step
    for i in range(5000):
        curve.note(0, np.array([[i % 8]], dtype=np.int32))
    assert curve.misses(0) == pytest.approx(1.0) and curve.misses(8) == pytest.approx(0.0, abs=1e-9)


def test_prompts_change_the_order_and_are_not_counted():
    curve = Curve(1, 8, "lru")
    curve.note(0, np.arange(DECODE_ROWS + 1, dtype=np.int32)[:, None] % 8)
    assert curve.steps == 0 and curve.misses(0) == 0 and curve.rate(4) == 0
    curve.note(0, np.array([[3]], dtype=np.int32))
    assert curve.steps == 1 and curve.misses(8) == 0 and curve.misses(0) == 1


def test_forgetting_is_complete():
    curve = Curve(1, 8)
    curve.note(0, np.array([[3]], dtype=np.int32))
    curve.reset()
    assert curve.steps == 0 and curve.misses(0) == 0
    curve.note(0, np.array([[3]], dtype=np.int32))
    assert curve.misses(8) == 1, "the first use after that misses again"


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_ids_may_have_any_usual_width(dtype):
    curve = Curve(1, 8)
    curve.note(0, np.array([[3, 4], [4, 5]], dtype=dtype))
    assert curve.misses(0) == 3


@pytest.mark.parametrize(
    ("layer", "ids"),
    [
        (1, np.zeros((1, 1), dtype=np.int32)),
        (-1, np.zeros((1, 1), dtype=np.int32)),
        (0, np.full((1, 1), 8, dtype=np.int32)),
        (0, np.full((1, 1), -1, dtype=np.int32)),
        (0, np.zeros((1, 1), dtype=np.float32)),
        (0, np.zeros(1, dtype=np.int32)),
        (0, np.zeros((2, 4), dtype=np.int32)[:, ::2]),
    ],
)
def test_what_is_no_routing_is_refused_and_changes_nothing(layer, ids):
    curve = Curve(1, 8)
    with pytest.raises((ValueError, IndexError, TypeError, BufferError)):
        curve.note(layer, ids)
    assert curve.steps == 0
