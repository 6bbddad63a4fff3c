"""From what somebody asks of a running engine's memory to the split that gives it. Torch-free arithmetic."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import BadRequest, Unsupported
from engine.memory.amounts import MIN_KV_TOKENS
from engine.memory.plan import Plan, size_text
from engine.memory.presets import PRESETS, share
from engine.memory.split import Split


def wanted_split(
    plan: Plan, now: Split, kv_tokens: int | None = None, moe_slots: int | None = None, preset: str | None = None
) -> Split:
    """The split with `kv_tokens` over all sessions and `moe_slots` over all layers; what is not given is the preset's, or stays,
    and gives way as far as it must. States keep their slabs.

    Raises BadRequest for what the whole arena could not give, Unsupported for slots where experts have none.
    """
    tier, slabs = plan.tier, plan.slabs + plan.room_slabs - now.state_slabs
    if moe_slots is not None and not plan.expert_slabs:
        raise Unsupported("Experts are computed where they lie here: there are no slots.", "Leave --moe out.")
    if preset is not None and preset not in PRESETS:
        raise BadRequest(f"There is no preset {preset!r}.", f"Use one of {', '.join(PRESETS)}.")
    least = tier.expert_slabs(tier.slots_least) if plan.expert_slabs else 0
    _in_reach(plan, slabs, least, kv_tokens, moe_slots)
    if preset is not None:
        live = replace(tier, slabs=slabs, slots_most=tier.experts if plan.expert_slabs else 0, kv_share=1)
        tokens, slots = share(preset, live, kv_tokens, moe_slots)
        kv, experts = tier.kv_slabs(tokens), tier.expert_slabs(slots)
    else:
        kv = now.kv_slabs if kv_tokens is None else tier.kv_slabs(kv_tokens)
        experts = now.experts_slabs if moe_slots is None else tier.expert_slabs(moe_slots)
    if kv + experts > slabs and moe_slots is None:
        experts = max(least, slabs - kv)
    if kv + experts > slabs and kv_tokens is None:
        kv = slabs - experts
    if kv + experts > slabs:
        free = size_text((kv + experts - slabs) * plan.slab_bytes)
        raise BadRequest(
            f"KV {kv_tokens} and {moe_slots} expert slots together need {free} more than there is.",
            f"With that KV there is room for {max(0, slabs - kv) * tier.slots_per_slab} slots.",
        )
    return Split(kv, now.state_slabs, experts)


def _in_reach(plan: Plan, slabs: int, least: int, kv_tokens: int | None, moe_slots: int | None) -> None:
    tier = plan.tier
    if kv_tokens is not None:
        most = tier.kv_tokens(slabs - least)
        if kv_tokens < MIN_KV_TOKENS:
            raise BadRequest(
                f"KV {kv_tokens} is too little to serve anything.", f"Give {MIN_KV_TOKENS} tokens or more."
            )
        if tier.kv_slabs(kv_tokens) > slabs - least:
            raise BadRequest(
                f"KV {kv_tokens} is more than this engine's memory could ever hold: {most} tokens.",
                f"Give --kv {most} or less, or start anew: ft engine restart --kv {kv_tokens}",
            )
    if moe_slots is not None:
        room = (slabs - tier.kv_slabs(MIN_KV_TOKENS)) * tier.slots_per_slab
        if moe_slots < tier.slots_least:
            raise BadRequest(f"{moe_slots} expert slots: one token needs {tier.slots_least}.", "Give that or more.")
        if moe_slots > tier.experts:
            raise BadRequest(f"{moe_slots} expert slots: the model has {tier.experts} experts.", "Give that or fewer.")
        if moe_slots > room:
            raise BadRequest(
                f"{moe_slots} expert slots are more than this engine's memory could ever hold: {room}.",
                f"Give --moe {room} or less, or start anew: ft engine restart --moe-slots {moe_slots}",
            )
