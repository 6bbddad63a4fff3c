"""The slot table against a plain model of it, and waves against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(steps)
def test_admission_never_evicts_what_it_uses_and_counts_are_exact(stream):
    table = SlotTable(LAYERS, EXPERTS, SLOTS)
    for layer, routed in stream:
        before = {(int(s // EXPERTS), int(s % EXPERTS)) for s in table.holder if s >= 0}
        admission = table.admit(layer, np.array(routed))
        table.check()
        assert admission.experts.tolist() == sorted(set(routed))
        assert len(set(admission.slots.tolist())) == len(admission.slots)
        assert table.slot_of[layer, admission.experts].tolist() == admission.slots.tolist()
        assert admission.fills.tolist() == [(layer, e) not in before for e in admission.experts.tolist()]


def test_the_least_recently_used_expert_goes_first():
    table = SlotTable(2, 4, 3)
    table.admit(0, np.array([0]))
    table.admit(0, np.array([1]))
    table.admit(1, np.array([2]))
    table.admit(0, np.array([0]))
    table.admit(1, np.array([3]))  # takes the place of (0, 1)
    assert table.slot_of.tolist() == [[0, -1, -1, -1], [-1, -1, 2, 1]]


@given(steps)
def test_hits_equal_those_of_plain_lru_with_one_expert_per_step(stream):
    table, plain = SlotTable(LAYERS, EXPERTS, SLOTS), PlainLru()
    for layer, routed in stream:
        admission = table.admit(layer, np.array(routed[:1]))
        hits, misses = plain.admit(layer, set(routed[:1]))
        assert (len(admission.experts) - admission.misses, admission.misses) == (hits, misses)


def test_more_experts_than_slots_is_an_error():
    with pytest.raises(ValueError, match="4 experts routed at once, 3 slots"):
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
