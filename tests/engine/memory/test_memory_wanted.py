"""What is asked of a running engine's memory: given exactly, or refused with a number that works."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BadRequest, FtError, Unsupported
from engine.memory.presets import NAMES
from engine.memory.report import Now, kv_tokens, memory_map, moe_slots, move_answer, side, start_split
from engine.memory.split import Split
from engine.memory.wanted import wanted_split
from tests.engine.memory.plans import GIB, TIERS, make

PLANS = {tier: make(**TIERS[tier]) for tier in TIERS} | {"pages only": make(available=14 * GIB)}


def arena(plan) -> int:
    return plan.slabs + plan.room_slabs


@given(
    tier=st.sampled_from(list(PLANS)),
    kv=st.none() | st.integers(1, 400_000),
    slots=st.none() | st.integers(1, 3000),
    preset=st.none() | st.sampled_from(NAMES),
    at=st.floats(0, 1),
)
def test_what_is_asked_for_is_given_or_refused(tier, kv, slots, preset, at):
    plan = PLANS[tier]
    least = plan.tier.expert_slabs(plan.tier.slots_least) if plan.expert_slabs else 0
    here = int(at * (arena(plan) - least - 2)) + 1
    now = Split(here, 0, arena(plan) - here if plan.expert_slabs else 0)
    try:
        split = wanted_split(plan, now, kv, slots, preset)
    except FtError as error:
        assert error.hint
        return
    assert split.slabs <= arena(plan) and split.state_slabs == now.state_slabs
    if kv is not None:
        assert kv_tokens(plan, split.kv_slabs) >= kv
    if slots is not None:
        assert moe_slots(plan, split.experts_slabs) >= slots
    if plan.expert_slabs:
        assert split.experts_slabs >= least
    if kv is None and slots is None and preset is None:
        assert split == now


@pytest.mark.parametrize("tier", TIERS)
def test_the_other_tenant_gives_way_and_the_limit_that_is_named_works(tier):
    plan = PLANS[tier]
    now = start_split(plan)
    more = wanted_split(plan, now, kv_tokens=plan.kv_tokens + 8000)
    assert more.experts_slabs <= now.experts_slabs and more.slabs <= arena(plan)
    with pytest.raises(BadRequest, match="could ever hold") as caught:
        wanted_split(plan, now, kv_tokens=50_000_000)
    most = int(re.search(r"--kv (\d+)", caught.value.hint).group(1))
    assert kv_tokens(plan, wanted_split(plan, now, kv_tokens=most).kv_slabs) >= most
    with pytest.raises(BadRequest):
        wanted_split(plan, now, kv_tokens=most + plan.page_tokens)
    with pytest.raises(BadRequest, match="together need") as caught:
        wanted_split(plan, now, kv_tokens=most, moe_slots=500)
    with pytest.raises(BadRequest, match="one token needs 2"):
        wanted_split(plan, now, moe_slots=1)
    with pytest.raises(BadRequest, match="has 1920 experts"):
        wanted_split(plan, now, moe_slots=1921)


def test_minimum_can_grow_to_what_agents_need_and_back():
    plan = make(**TIERS["device"], preset="minimum")
    grown = wanted_split(plan, start_split(plan), preset="agent")
    assert kv_tokens(plan, grown.kv_slabs) >= 50 << 10 and moe_slots(plan, grown.experts_slabs) >= 128
    back = wanted_split(plan, grown, preset="minimum")
    assert (kv_tokens(plan, back.kv_slabs), moe_slots(plan, back.experts_slabs)) == (4096, 64)


def test_where_experts_have_no_slots_only_pages_are_asked_for():
    plan = PLANS["pages only"]
    with pytest.raises(Unsupported, match="no slots"):
        wanted_split(plan, start_split(plan), moe_slots=4)
    assert wanted_split(plan, start_split(plan), preset="minimum").experts_slabs == 0


def test_the_map_says_what_there_is_in_tokens_and_slots():
    plan = PLANS["disk"]
    now = Now(start_split(plan), free_slabs=3, preset="agent", auto=True, resident=7, rate=lambda slots: 1 / slots)
    told = memory_map(plan, now, moves=[{"at": 1.0, "reason": "a test"}])
    assert told["kv"]["tokens"] == plan.kv_tokens and told["kv"]["most_tokens"] > plan.kv_tokens
    assert told["experts"]["slots"] == plan.moe_slots and told["experts"]["total"] == 1920
    assert told["experts"]["miss_rate"] == told["experts"]["static_miss_rate"] == 1 / plan.moe_slots
    assert memory_map(PLANS["pages only"], Now(start_split(PLANS["pages only"]), 0))["experts"] is None
    here = side(plan, now.split, {"decode_tokens_per_s": 3.5, "miss_rate": 0.25})
    answer = move_answer(here, here, seconds_to_apply=0.25)
    assert answer["now"]["decode_tokens_per_s"] == 3.5 and answer["possible"] and not answer["applied"]
