"""The slot table against a plain model of it, its policies, and waves against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.experts.policy import POLICIES, Frequency, Recency
from engine.experts.slots import SlotTable
from engine.experts.waves import waves

LAYERS, EXPERTS, SLOTS = 3, 6, 7


class PlainLru:
    """Which experts are resident, least recently used first."""

    def __init__(self) -> None:
        self.order: list[tuple[int, int]] = []

    def admit(self, layer: int, routed: set[int]) -> tuple[int, int]:
        wanted = [(layer, e) for e in sorted(routed)]
        misses = [key for key in wanted if key not in self.order]
        self.order = [key for key in self.order if key not in wanted]
        self.order = self.order[max(0, len(self.order) + len(wanted) - SLOTS) :] + wanted
        return len(wanted) - len(misses), len(misses)


steps = st.lists(
    st.tuples(st.integers(0, LAYERS - 1), st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=9)),
    max_size=60,
)


def rows_of(routed: list[int]) -> np.ndarray:
    return np.array(routed, dtype=np.int32).reshape(-1, 1)


@settings(deadline=None)
@given(steps, st.sampled_from(sorted(POLICIES)))
def test_admission_never_evicts_what_it_uses_and_counts_are_exact(stream, policy):
    table = SlotTable(LAYERS, EXPERTS, SLOTS, POLICIES[policy](LAYERS, EXPERTS))
    for layer, routed in stream:
        before = {(int(s // EXPERTS), int(s % EXPERTS)) for s in table.holder if s >= 0}
        admission = table.admit(layer, rows_of(routed))
        table.check()
        assert admission.experts.tolist() == sorted(set(routed))
        assert admission.rows.tolist() == [routed.count(e) for e in sorted(set(routed))]
        assert len(set(admission.slots.tolist())) == len(admission.slots)
        assert table.slot_of[layer, admission.experts].tolist() == admission.slots.tolist()
        assert admission.fills.tolist() == [(layer, e) not in before for e in admission.experts.tolist()]
        assert admission.misses == admission.fills.sum()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, LAYERS - 1), st.lists(st.integers(0, EXPERTS - 1), min_size=1)),
        st.tuples(st.just("ahead"), st.integers(0, LAYERS - 1), st.lists(st.integers(0, EXPERTS - 1), min_size=1)),
        st.tuples(st.just("resize"), st.just(0), st.lists(st.integers(0, SLOTS - 1), unique=True)),
        st.tuples(st.just("pin"), st.just(0), st.lists(st.integers(0, SLOTS - 1), unique=True)),
        st.tuples(st.just("drop"), st.just(0), st.lists(st.integers(0, SLOTS - 1), unique=True)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(actions, st.integers(0, 4) | st.none())
def test_slots_never_lie_whatever_is_admitted_pinned_or_withdrawn(stream, fills_allowed):
    table = SlotTable(LAYERS, EXPERTS, SLOTS)
    memory: dict[int, tuple[int, int]] = {}  # what a copy into each slot left there
    for action, layer, numbers in stream:
        before, pinned = table.slot_of.copy(), table.pinned.copy()
        if action == "pin":
            table.pinned[:] = False
            table.pinned[numbers] = table.holder[numbers] >= 0
        elif action == "drop":
            table.drop(np.array(numbers, dtype=np.int64))
            assert (table.holder[numbers] == -1).all()
        elif action == "resize":
            table.pinned[:] = False
            table.withdraw(np.flatnonzero(table.offered))
            table.offer(np.array(numbers, dtype=np.int64))
            assert table.slots == len(numbers)
        else:
            try:
                admission = table.admit(layer, rows_of(numbers), fills_allowed, used=action == "admit")
            except ValueError:
                table.check()
                assert (table.slot_of == before).all()
                continue
            for expert, slot, fill in zip(admission.experts, admission.slots, admission.fills, strict=True):
                if fill:
                    assert table.offered[slot]
                    assert not pinned[slot]
                    memory[int(slot)] = (layer, int(expert))
                if slot >= 0:
                    assert memory[int(slot)] == (layer, expert)
            if fills_allowed is not None:
                assert admission.fills.sum() == min(fills_allowed, admission.misses)
            assert (before[layer, admission.experts] < 0).sum() == admission.misses
        table.check()
        for slot in np.flatnonzero(table.holder >= 0).tolist():
            assert memory[slot] == divmod(int(table.holder[slot]), EXPERTS)


def test_the_least_recently_used_expert_goes_first():
    table = SlotTable(2, 4, 3, Recency(2, 4))
    table.admit(0, np.array([0]))
    table.admit(0, np.array([1]))
    table.admit(1, np.array([2]))
    table.admit(0, np.array([0]))
    table.admit(1, np.array([3]))  # takes the place of (0, 1)
    assert table.slot_of.tolist() == [[0, -1, -1, -1], [-1, -1, 2, 1]]


@given(steps)
def test_hits_equal_those_of_plain_lru_with_one_expert_per_step(stream):
    table, plain = SlotTable(LAYERS, EXPERTS, SLOTS, Recency(LAYERS, EXPERTS)), PlainLru()
    for layer, routed in stream:
        admission = table.admit(layer, np.array(routed[:1]))
        hits, misses = plain.admit(layer, set(routed[:1]))
        assert (len(admission.experts) - admission.misses, admission.misses) == (hits, misses)


@given(st.lists(st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True), min_size=1), min_size=1))
def test_worth_is_the_number_of_uses_with_older_rows_counting_less(step_rows):
    policy, uses, row = Frequency(2, 8, half_life=5.0), [], 0
    for rows in step_rows:
        for layer in (0, 1):
            ids = np.array(rows, dtype=np.int32)[:, ::-1] if layer else np.array(rows, dtype=np.int32)
            policy.touch(layer, ids, np.unique(ids))
        uses += [(row + i, expert) for i, pair in enumerate(rows) for expert in pair]
        row += len(rows)
    expected = np.zeros(8)
    for at, expert in uses:
        expected[expert] += 2.0 ** ((at - row) / 5.0)
    for layer in (0, 1):
        np.testing.assert_allclose(np.exp2(policy.worth[layer] - row / 5.0), expected, rtol=1e-9)


def test_a_chunk_is_worth_what_its_rows_one_by_one_are():
    ids = np.random.default_rng(0).integers(0, 6, (40, 1))
    together, apart = Frequency(1, 6), Frequency(1, 6)
    together.touch(0, ids, np.unique(ids))
    for row in ids:
        apart.touch(0, row[None], row)
    np.testing.assert_allclose(together.worth, apart.worth)


def test_what_came_ahead_of_its_use_is_worth_nothing_until_used():
    table = SlotTable(1, 4, 2)
    table.admit(0, np.array([0]))
    table.admit(0, np.array([1]), used=False)
    table.admit(0, np.array([2]))
    assert table.slot_of.tolist() == [[0, -1, 1, -1]]


def test_misses_of_most_rows_and_then_most_worth_are_filled_when_not_all_may_be():
    table = SlotTable(1, 8, 4)
    table.admit(0, np.array([[6]]))
    table.withdraw(np.arange(4))
    table.offer(np.arange(4))
    admission = table.admit(0, np.array([[1, 3], [3, 5], [3, 6]]), fills_allowed=2)
    assert admission.experts[admission.fills].tolist() == [3, 6]
    assert admission.slots.tolist() == [-1, 0, -1, 1]
    assert admission.misses == 4


def test_more_experts_than_slots_is_an_error():
    with pytest.raises(ValueError, match="4 experts needed at once, 3 slots"):
        SlotTable(1, 8, 3).admit(0, np.arange(4))


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_waves_fit_the_slots_and_hold_every_row_once(rows, top_k, spare, seed):
    random = np.random.default_rng(seed)
    ids = np.stack([random.permutation(10)[:top_k] for _ in range(rows)]).astype(np.int32)
    found = waves(ids, top_k + spare)
    assert sorted(np.concatenate(found).tolist()) == list(range(rows))
    assert all(len(np.unique(ids[wave])) <= top_k + spare for wave in found)


def test_rows_with_the_same_experts_share_a_wave():
    ids = np.array([[3, 1], [1, 3], [0, 2], [3, 1], [2, 0]], dtype=np.int32)
    assert [wave.tolist() for wave in waves(ids, 2)] == [[2, 4], [0, 1, 3]]
    assert len(waves(ids, 4)) == 1
