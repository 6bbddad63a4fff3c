"""How many misses are filled: running rates, rounding, and a whole machine in modelled time against every static split."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.device.clock import ModelClock
from engine.experts.split import Profile, Rate, Rates, Split

MB = 1e6


def test_one_outlier_changes_nothing_and_a_change_is_followed_at_once():
    rate = Rate(10 * MB)
    for _ in range(10):
        rate.saw(10 * MB, 1.0)
    rate.saw(10 * MB, 50.0)
    for _ in range(3):
        rate.saw(10 * MB, 1.0)
        assert rate.value == pytest.approx(10 * MB)
    for _ in range(3):
        rate.saw(10 * MB, 4.0)
    assert rate.value == pytest.approx(2.5 * MB)


def test_small_drifts_are_followed_slowly():
    rate = Rate(10 * MB)
    for _ in range(4):
        rate.saw(11 * MB, 1.0)
    assert 10 * MB < rate.value < 10.5 * MB
    for _ in range(60):
        rate.saw(11 * MB, 1.0)
    assert rate.value == pytest.approx(11 * MB, rel=1e-3)


def test_what_copies_take_of_the_bus_is_found_from_work_beside_them():
    rates = Rates(Profile(1 * MB, 2 * MB))
    for i in range(6):  # fills at 20 from i to i + 1, in-place work at 30 beside them and at 50 for another half second
        rates.filled(20 * MB, (i, i + 1))
        rates.in_place(int(30 * MB + 25 * MB), (i, i + 1.5), 1.0, (i, i + 1))
        rates.in_place(int(50 * MB), (i, i + 1.0), 1.0)
    assert rates.fill.value == pytest.approx(20 * MB)
    assert rates.alone[0].value == pytest.approx(50 * MB)
    assert rates.host == pytest.approx(50 * MB, rel=0.01)
    assert Split(rates, 1000).share == pytest.approx(0.4, rel=0.02)


@given(st.floats(1, 100), st.floats(1, 100), st.integers(1, 128))
def test_q_star_is_the_formula_when_nothing_else_takes_time(fill, more, misses):
    split = Split(Rates(Profile(fill, fill + more)), 1)
    assert split.wanted(misses, 1.0, 0) == pytest.approx(misses * fill / (fill + more))


def test_the_average_of_fills_is_q_star_where_no_fill_is_free():
    split = Split(Rates(Profile(1 * MB, 10 * MB)), 1000)
    split.replaced(np.zeros(1000, dtype=bool))  # nothing is ever used twice
    chosen = [split.choose(3) for _ in range(1000)]
    assert sum(chosen) / 1000 == pytest.approx(0.3, abs=0.02)
    assert set(chosen) == {0, 1}


def test_a_fixed_share_is_kept():
    split = Split(Rates(Profile(1.0, 2.0)), 1, fixed=0.25)
    assert sum(split.choose(6) for _ in range(400)) == 600
    for share, q in ((0.0, 0), (1.0, 7)):
        assert {Split(Rates(Profile(1.0, 2.0)), 1, fixed=share).choose(7) for _ in range(100)} == {q}


def test_a_rate_at_either_end_is_still_measured():
    fast, slow = Split(Rates(Profile(1e9, 1.0001e9)), 1000), Split(Rates(Profile(1.0, 1e9)), 1000)
    assert {fast.choose(5) for _ in range(200)} == {4, 5}
    assert {slow.choose(5) for _ in range(200)} == {0, 1}
    assert fast.choose(0) == 0


def test_more_rows_per_expert_and_a_busy_device_move_the_split():
    rates = Rates(Profile(20 * MB, 60 * MB))
    split = Split(rates, 1 << 20)
    plain = split.wanted(16, 1.0, 8)
    for i in range(6):  # with four rows each, in-place work takes four times as long
        rates.in_place(10 << 20, (i, i + (10 << 20) / (10 * MB)), 4.0, (i, i + 10.0))
    assert split.wanted(16, 4.0, 8) > plain
    for _ in range(6):
        rates.computed(8, 8 * 0.05)
    assert split.wanted(16, 1.0, 8) < plain


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
    try:
        import split

        return split
    finally:
        sys.path.pop(0)


def test_one_formula_is_right_on_opposite_machines(bench):
    for row in bench.ratio_rows(ModelClock(), 20):
        assert row["ratio"] <= 1.03, row


def test_a_throttle_that_changes_is_followed(bench):
    rows = bench.phase_rows(ModelClock(), 40)
    assert len(rows) == 4
    for row in rows:
        assert row["ratio"] >= 0.95, row


def test_a_fill_that_is_used_again_and_again_is_worth_a_longer_step():
    eager, idle = (Split(Rates(Profile(25 * MB, 57 * MB)), 1000) for _ in range(2))
    idle.replaced(np.zeros(1000, dtype=bool))
    assert sum(idle.choose(3) for _ in range(100)) < sum(eager.choose(3) for _ in range(100)) <= 300


def test_batches_stay_near_the_best_share(bench):
    for row in bench.batch_rows(ModelClock(), 60, (1, 4)):
        assert row["ratio"] <= 1.05, row
