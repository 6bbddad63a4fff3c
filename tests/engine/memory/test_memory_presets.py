"""What each preset promises, on every tier and for any machine: floors where they fit, nothing beyond the memory, given sizes kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.plan import build_pools
from engine.memory.presets import NAMES, PRESETS, Tier, share
from tests.engine.memory.plans import GIB, MODEL, TIERS, make

AGENT_KV = 50 * 1024


@pytest.mark.parametrize("tier", TIERS)
def test_minimum_is_four_thousand_tokens_and_one_layer_of_experts(tier):
    made = make(**TIERS[tier], preset="minimum")
    assert made.fits and (made.kv_tokens, made.moe_slots) == (4096, 64)
    assert made.room_slabs > 100, "both can grow later without another allocation"


@pytest.mark.parametrize("tier", TIERS)
def test_chat_is_ten_thousand_tokens_and_the_rest_experts(tier):
    made = make(**TIERS[tier], preset="chat")
    assert made.fits and made.kv_tokens == 10240
    budget = 4 * GIB if tier == "disk" else 6 * GIB - sum(made.tenants[t] for t in ("dense", "workspace", "kv"))
    assert 0 <= budget - made.moe_slots * MODEL.expert_bytes < 2 * made.slab_bytes


@pytest.mark.parametrize("preset", ["agent", "auto"])
@pytest.mark.parametrize("tier", TIERS)
def test_agents_get_a_window_worth_having_and_whole_layers_of_experts(tier, preset):
    made = make(**TIERS[tier], preset=preset)
    assert made.fits and made.kv_tokens >= AGENT_KV and made.window_tokens >= AGENT_KV
    assert made.moe_slots >= 2 * MODEL.experts
    assert make(**TIERS[tier]) == make(**TIERS[tier], preset="auto"), "auto is what is used where nothing is said"


def test_a_device_that_holds_only_one_of_the_two_is_shared():
    """The window is never what experts leave: floors first, and where both do not fit, a half each."""
    tight = {"available": 64 * GIB, "device": "emulated", "moe_backend": "offload"}
    made = make(**tight, device_memory=3 * GIB, preset="agent")
    assert made.kv_tokens >= AGENT_KV and made.moe_slots >= 2 * 64
    made = make(**tight, device_memory=GIB, preset="agent")
    assert made.fits and made.kv_tokens > AGENT_KV // 4
    assert 0.3 < made.tenants["kv"] / (made.tenants["kv"] + made.tenants["experts"]) < 0.7


@pytest.mark.parametrize("preset", NAMES)
@pytest.mark.parametrize("tier", TIERS)
def test_given_sizes_win_over_every_preset(tier, preset):
    made = make(**TIERS[tier], preset=preset, kv_tokens=7000, moe_slots=99)
    assert (made.kv_tokens, made.moe_slots) == (7000, 99)
    assert make(**TIERS[tier], preset=preset, kv_tokens=7000).kv_tokens == 7000
    assert make(**TIERS[tier], preset=preset, moe_slots=99).moe_slots == 99


def test_where_experts_need_no_slots_only_kv_is_chosen():
    sizes = {preset: make(preset=preset).kv_tokens for preset in NAMES}
    assert sizes == {"auto": 131072, "minimum": 4096, "chat": 10240, "agent": 131072}
    assert all(make(preset=preset).moe_slots == 0 for preset in NAMES)
    short = make(available=13 * GIB, preset="agent")
    assert short.fits and AGENT_KV <= short.kv_tokens < 131072


def test_a_model_with_a_small_window_gets_no_kv_that_nobody_can_use():
    small = replace(MODEL, max_window_tokens=2048)
    assert make(geometry=small).kv_tokens == 2048
    assert make(geometry=small, preset="agent").kv_tokens == 2048 * 8
    assert make(geometry=small, preset="agent", max_running=64).kv_tokens == AGENT_KV


@given(
    preset=st.sampled_from(NAMES),
    tier=st.builds(
        Tier,
        slabs=st.integers(0, 5000),
        tokens_per_slab=st.integers(64, 4096),
        sentinel_tokens=st.sampled_from([16, 32, 64]),
        slots_per_slab=st.integers(1, 40),
        experts=st.just(20_000),
        slots_most=st.integers(8, 20_000),
        slots_least=st.integers(1, 8),
        layer_slots=st.integers(8, 256),
        window_tokens=st.integers(256, 1 << 20),
        running=st.integers(1, 64),
        kv_share=st.sampled_from([1, 2]),
    ),
)
def test_nothing_is_shared_out_twice(preset, tier):
    tokens, slots = share(preset, tier)
    used = tier.kv_slabs(tokens) + tier.expert_slabs(slots)
    least = tier.kv_slabs(1) + tier.expert_slabs(tier.slots_least)
    assert used <= max(tier.slabs, least)
    assert tokens >= 1 and tier.slots_least <= slots <= tier.slots_most
    if not PRESETS[preset].kv_grows:
        assert tokens <= PRESETS[preset].kv_tokens
    elif (
        tokens < PRESETS[preset].kv_tokens and tokens < tier.window_tokens
    ):  # not even the floor: experts have no more than half
        floor = min(tier.slots_most, max(tier.slots_least, PRESETS[preset].expert_layers * tier.layer_slots))
        assert tier.expert_slabs(slots) <= max(tier.slabs // 2, tier.expert_slabs(floor)) + 1


@given(
    preset=st.sampled_from(NAMES),
    available=st.integers(GIB, 32 * GIB),
    memory=st.none() | st.integers(GIB // 4, 8 * GIB),
    kv=st.none() | st.integers(256, 300_000),
)
def test_the_room_of_any_plan_lies_in_memory_that_is_there(preset, available, memory, kv):
    made = make(available, preset=preset, device="emulated", moe_backend="offload", device_memory=memory, kv_tokens=kv)
    pools = build_pools(made)
    assert pools.arena.slabs == made.slabs + made.room_slabs
    assert pools.pages.capacity * made.page_tokens < made.kv_tokens + made.tier.tokens_per_slab
    if made.room_slabs:
        assert made.total_bytes + made.room_slabs * made.slab_bytes <= available
        assert memory is None or made.device_bytes + made.room_slabs * made.slab_bytes <= memory
