"""Recorded streams and their replay: what the engine counted, an optimum that nothing beats, and real routing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.kernels
from engine.device.cpu import CpuDevice
from engine.errors import WeightsError
from engine.experts.executor import offload
from engine.experts.policy import DEFAULT, POLICIES
from engine.experts.record import Recorder, Stream, load_stream
from engine.experts.replay import CACHES, DECODE_ROWS, replay

KEPT = Path(__file__).parent / "streams" / "smollm2-128x8.npz"
FILLING = [*POLICIES, "s3fifo", "ahead1", "ahead4"]  # policies that fill every miss, as the optimum does
LAYERS, EXPERTS, TOP_K = 2, 6, 2


def recorded(steps: list[list[list[int]]]) -> Stream:
    """Every step gives both layers its rows, the second one's shifted."""
    recorder = Recorder(LAYERS, EXPERTS, "by hand")
    for rows in steps:
        for layer in range(LAYERS):
            recorder.note(layer, (np.array(rows, dtype=np.int32) + layer) % EXPERTS)
    return recorder.stream()


row = st.lists(st.integers(0, EXPERTS - 1), min_size=TOP_K, max_size=TOP_K, unique=True)
streams = st.lists(st.lists(row, min_size=1, max_size=3), min_size=1, max_size=30).map(recorded)


@settings(deadline=None)
@given(streams)
def test_a_stream_is_read_as_it_was_recorded(tmp_path_factory, stream):
    path = tmp_path_factory.mktemp("stream") / "s.npz"
    stream.save(path)
    read = load_stream(path)
    assert (read.layers, read.experts, read.label, len(read)) == (LAYERS, EXPERTS, "by hand", len(stream))
    for (layer, ids), (read_layer, read_ids) in zip(stream, read, strict=True):
        assert layer == read_layer
        assert (ids == read_ids).all()
    assert read.steps().tolist() == [i // LAYERS for i in range(len(stream))]
    assert [p.name for p in path.parent.iterdir()] == ["s.npz"]


def test_files_that_are_no_streams_are_refused_by_name(tmp_path):
    with pytest.raises(WeightsError, match=r"gone\.npz cannot be read"):
        load_stream(tmp_path / "gone.npz")
    (tmp_path / "text.npz").write_text("not a zip")
    with pytest.raises(WeightsError, match=r"text\.npz is no recorded expert stream"):
        load_stream(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", format=np.array([{}], dtype=object))
    with pytest.raises(WeightsError, match=r"objects\.npz is no recorded expert stream"):
        load_stream(tmp_path / "objects.npz")
    stream = recorded([[[0, 1]]])
    stream.ids[0, 0] = EXPERTS
    stream.save(tmp_path / "wrong.npz")
    with pytest.raises(WeightsError, match=r"wrong\.npz contradicts itself"):
        load_stream(tmp_path / "wrong.npz")


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(TOP_K, LAYERS * EXPERTS))
def test_no_policy_beats_the_optimum(stream, slots):
    optimum = replay(stream, slots, "belady")
    for name in FILLING:
        counted = replay(stream, slots, name)
        assert counted.accesses == optimum.accesses
        assert counted.misses >= optimum.misses, name


@settings(max_examples=60, deadline=None)
@given(st.lists(row.map(lambda ids: [ids]), min_size=1, max_size=7).map(recorded), st.integers(TOP_K, 4))
def test_the_optimum_is_what_trying_everything_finds(stream, slots):
    accesses = [frozenset((layer, int(e)) for e in ids[0]) for layer, ids in stream]

    @cache
    def least(i: int, resident: frozenset[tuple[int, int]]) -> int:
        if i == len(accesses):
            return 0
        wanted = accesses[i]
        others = sorted(resident - wanted)
        room = slots - len(wanted)
        keep = [frozenset(others)] if len(others) <= room else subsets(others, room)
        return len(wanted - resident) + min(least(i + 1, wanted | kept) for kept in keep)

    def subsets(items: list[tuple[int, int]], n: int) -> list[frozenset[tuple[int, int]]]:
        from itertools import combinations

        return [frozenset(chosen) for chosen in combinations(items, n)]

    assert replay(stream, slots, "belady").misses == least(0, frozenset())


@pytest.mark.parametrize("slots", [TOP_K, TOP_K + 1, EXPERTS, 2 * EXPERTS - 1])
def test_a_replay_counts_what_the_executor_counted(make_bank, make_slots, make_rows, slots):
    bank = make_bank(LAYERS, EXPERTS)
    live = offload(engine.kernels.get("cpu"), bank, CpuDevice(), make_slots(bank, slots), TOP_K)
    live.record = Recorder(LAYERS, EXPERTS)
    for step in range(30):
        for layer in range(LAYERS):
            x, ids, weights = make_rows(1 + (step % 3 == 0) * 4, EXPERTS, TOP_K, bank.shape.hidden, 7 * step + layer)
            live.run(layer, x, ids, weights)
    live.close()
    counted = replay(live.record.stream(), slots, DEFAULT)
    assert (counted.misses, counted.accesses) == (sum(live.misses), sum(live.misses) + sum(live.hits))
    assert counted.misses > 0


def test_everything_fits_is_one_miss_for_each_expert():
    stream = load_stream(KEPT)
    rows = sum(len(ids) for _, ids in stream if len(ids) <= DECODE_ROWS)
    for name in FILLING:
        counted = replay(stream, stream.layers * stream.experts, name)
        assert counted.accesses == rows * stream.top_k
        assert counted.rate < 0.01, name


def test_too_few_slots_and_unknown_policies_are_refused():
    stream = load_stream(KEPT)
    with pytest.raises(ValueError, match="7 slots cannot hold one row's 8 experts"):
        replay(stream, 7, DEFAULT)
    with pytest.raises(KeyError, match="magic"):
        replay(stream, 80, "magic")


@pytest.mark.parametrize(("capacity", "most"), [(0.37, 1.95), (0.11, 1.6)])
def test_the_default_policy_leads_on_real_routing(capacity, most):
    stream = load_stream(KEPT)
    slots = int(stream.layers * stream.experts * capacity)
    rates = {name: replay(stream, slots, name).rate for name in ("belady", *POLICIES, *CACHES)}
    assert rates[DEFAULT] < most * rates["belady"]
    assert rates[DEFAULT] < 0.9 * rates["lru"]
    assert rates[DEFAULT] < rates["s3fifo"] < rates["lru"]
    assert rates["blind"] > 0.9 * (1 - capacity)
    ahead = [rates[f"ahead{n}"] for n in (1, 2, 4, 8, 16)]
    assert rates["belady"] <= ahead[4] <= ahead[3] <= ahead[2] <= ahead[1] <= ahead[0] < rates[DEFAULT]
