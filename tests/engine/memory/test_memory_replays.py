"""The curve of tokens computed again against replay with every capacity, and what it makes of a split."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.balance.replays import SETTLED, ReplayCurve
from engine.memory.balancer import Balancer, Split, View

PLACES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 900)), max_size=8)
REQUESTS = st.lists(st.tuples(st.integers(900, 2000), PLACES), min_size=1, max_size=30)


@given(REQUESTS)
def test_without_forgetting_it_is_the_mean_of_every_request_at_any_capacity(requests) -> None:
    curve = ReplayCurve(half_life=math.inf)
    for cached, places in requests:
        curve.note(cached, places)
    for capacity in range(42):
        again = [
            cached - max((at for least, at in places if least <= capacity), default=0) for cached, places in requests
        ]
        assert curve.tokens(capacity) == pytest.approx(sum(again) / len(again))


@given(REQUESTS)
def test_it_never_rises_with_the_capacity_nor_leaves_what_was_seen(requests) -> None:
    curve = ReplayCurve(half_life=3.0)
    for cached, places in requests:
        curve.note(cached, places)
    told = [curve.tokens(capacity) for capacity in range(42)]
    assert all(more <= less + 1e-6 for less, more in pairwise(told))
    assert told[-1] >= -1e-6 and told[0] <= max(cached for cached, _ in requests) + 1e-6


def test_what_is_old_counts_less_and_weights_stay_numbers() -> None:
    curve = ReplayCurve(half_life=1.0)
    for _ in range(2000):  # weights double each time
        curve.note(1000, [])
    for _ in range(60):
        curve.note(1000, [(5, 900)])
    assert curve.tokens(4) == pytest.approx(1000) and curve.tokens(5) == pytest.approx(100)


def test_nothing_is_known_before_some_requests() -> None:
    curve = ReplayCurve()
    assert curve.tokens(3) == 0.0
    for _ in range(SETTLED - 1):
        curve.note(10, [])
    assert not curve.known
    curve.note(10, [])
    assert curve.known


def lru(capacity: int, uses: list[int]) -> int:
    """Misses of a store that gives up what was used longest ago."""
    kept: list[int] = []
    missed = 0
    for use in uses:
        missed += use not in kept
        kept = [use, *(k for k in kept if k != use)][:capacity]
    return missed


@given(st.lists(st.integers(0, 15), min_size=1, max_size=120))
def test_stack_distances_give_the_misses_of_ten_capacities(uses) -> None:
    """Each use is a request of 100 tokens whose state lies in a store of as many places as others were used since."""
    curve = ReplayCurve(half_life=math.inf)
    order: list[int] = []
    for use in uses:
        curve.note(100, [(order.index(use) + 1, 100)] if use in order else [])
        order = [use, *(k for k in order if k != use)]
    for capacity in range(1, 11):
        assert curve.tokens(capacity) * len(uses) == pytest.approx(100 * lru(capacity, uses))


def view(tokens: float, enough: int = 12, **fields) -> View:
    made = View(
        now_s=1000.0,
        split=Split(20, 4, 60),
        slabs=84,
        slots_per_slab=1,
        tokens_per_slab=100,
        least=Split(5, 2, 4),
        misses=lambda slots: max(0.0, 60 - slots) * 0.05,
        miss_s=1e-3,
        step_s=5e-3,
        replay_s=1e-3,
        restart_tokens=lambda slabs: tokens * max(0.0, 1 - slabs / enough),
    )
    return replace(made, **fields)


def test_states_are_given_slabs_while_these_save_more_than_experts_do_with_them() -> None:
    proposal = Balancer().propose(view(4000.0))
    assert proposal is not None and proposal.split.state_slabs > 4 and proposal.reason == "checkpoints save more"
    assert proposal.split.slabs == 84
    assert Balancer().propose(view(4000.0, split=proposal.split)) is None, "settled"


def test_states_that_save_nothing_give_their_slabs_away() -> None:
    busy = view(0.0, split=Split(20, 24, 40), misses=lambda slots: max(0.0, 80 - slots) * 0.5)
    proposal = Balancer().propose(busy)
    assert proposal is not None and proposal.split.state_slabs == 2 and proposal.split.experts_slabs > 40
    assert proposal.reason == "checkpoints save less"


@pytest.mark.parametrize("fields", [{"restart_tokens": None}, {"pins": {"state": 4}}])
def test_what_is_not_known_or_set_by_hand_is_left_as_it_is(fields) -> None:
    proposal = Balancer().propose(view(4000.0, **fields))
    assert proposal is None or proposal.split.state_slabs == 4
