"""What a map of memory says, in tokens and slots."""

from __future__ import annotations

import pytest

from engine.memory.report import Now, kv_tokens, memory_map, moe_slots, move_answer, side, start_split
from tests.engine.memory.plans import TIERS, make

PLANS = {tier: make(**TIERS[tier]) for tier in TIERS} | {"pages only": make(available=14 << 30)}


@pytest.mark.parametrize("tier", TIERS)
def test_the_map_says_what_there_is_in_tokens_and_slots(tier):
    plan = PLANS[tier]
    now = Now(start_split(plan), free_slabs=3, preset="agent", auto=True, resident=7, rate=lambda slots: 1 / slots)
    told = memory_map(plan, now, moves=[{"at": 1.0, "reason": "a test"}])
    assert told["kv"]["tokens"] == plan.kv_tokens and told["kv"]["most_tokens"] > plan.kv_tokens
    assert told["experts"]["slots"] == plan.moe_slots and told["experts"]["total"] == 1920
    assert told["experts"]["miss_rate"] == told["experts"]["static_miss_rate"] == 1 / plan.moe_slots
    assert told["kv"]["pinned"] is False and told["auto"] is True


def test_there_is_no_line_for_experts_without_slots():
    plan = PLANS["pages only"]
    told = memory_map(plan, Now(start_split(plan), 0), state="loading")
    assert told["experts"] is None and told["state"] == "loading" and told["kv"]["tokens"] == plan.kv_tokens


@pytest.mark.parametrize("tier", TIERS)
def test_slabs_are_told_as_what_fits_in_them(tier):
    plan = PLANS[tier]
    assert kv_tokens(plan, plan.kv_slabs) == plan.kv_tokens and moe_slots(plan, plan.expert_slabs) == plan.moe_slots
    tokens = kv_tokens(plan, plan.kv_slabs + 1)
    assert plan.tier.kv_slabs(tokens) == plan.kv_slabs + 1
    assert plan.tier.kv_slabs(tokens + 1) == plan.kv_slabs + 2
    assert moe_slots(plan, 10_000) == 1920


def test_a_move_has_two_sides():
    plan = PLANS["disk"]
    here = side(plan, start_split(plan), {"decode_tokens_per_s": 3.5, "miss_rate": 0.25})
    answer = move_answer(here, here, seconds_to_apply=0.25)
    assert answer["now"]["decode_tokens_per_s"] == 3.5 and answer["possible"] and not answer["applied"]
