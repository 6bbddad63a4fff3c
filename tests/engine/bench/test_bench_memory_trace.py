"""The trace of the memory benchmark: what is kept is what its generator makes, and it says what it claims."""

from __future__ import annotations

import json
from itertools import pairwise

from engine.bench.memory.trace import KEPT, MOST_OUTPUT, PHASES, SCHEMA, START, TRACES, WINDOW, Shape, generate, load


def test_the_kept_trace_is_what_the_generator_makes():
    assert generate() == KEPT.read_text()
    assert json.loads(KEPT.read_text())["schema"] == SCHEMA


def test_every_turn_goes_on_where_its_line_was_and_fits_the_window():
    for name in TRACES:
        ends: dict[str, int] = {}
        for turn in load(name):
            assert turn.shared <= min(turn.prompt - 1, ends.get(turn.line, 0))
            assert 0 < turn.output <= MOST_OUTPUT and turn.gap_s > 0
            assert turn.prompt + turn.output <= WINDOW
            ends[turn.line] = turn.prompt + turn.output


def test_the_growing_session_passes_through_every_phase():
    turns = load("growing")
    assert {turn.line for turn in turns} == {"main"} and not any(turn.lent for turn in turns)
    assert turns[0].prompt == START == PHASES[0] and PHASES[-1] == WINDOW
    for start, end in pairwise(PHASES):
        assert sum(turn.output for turn in turns if start <= turn.prompt < end) > 200


def test_the_arena_holds_the_window_beside_one_tokens_experts():
    shape = Shape()
    assert WINDOW / shape.tokens_per_slab + shape.top_k / shape.slots_per_slab < shape.slabs
    assert shape.slots_per_slab * shape.expert_bytes <= shape.slab_bytes
    assert shape.slabs * shape.slots_per_slab < shape.layers * shape.experts, "all experts fit: nothing to trade"
