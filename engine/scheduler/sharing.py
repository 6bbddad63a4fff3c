"""From a plan to who may move what: what was asked for stays as it is, and the rest is shared out while requests run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.hardware import high_water_bytes, resident_bytes
from engine.memory.plan import Plan, Settings
from engine.memory.pools import Pools
from engine.memory.presets import PRESETS
from engine.scheduler.balancing import Balancing, Event
from engine.scheduler.moves import Mover
from engine.scheduler.others import Foreign
from engine.scheduler.outlook import Curve, Outlook
from engine.scheduler.replays import Replays
from engine.scheduler.residency import Residency
from engine.scheduler.slots import ExpertSlots
from engine.scheduler.step import Runner


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts whose slots may change hands: `slots` None where they have none. `miss_s` is what a missing one should cost,
    `misses` counts them so far, `resident` are those that lie in slots, `picture` tells which."""

    slots: ExpertSlots | None = None
    curve: Curve | None = None
    miss_s: float = 0.0
    misses: Callable[[], int] = lambda: 0
    resident: Callable[[], int] = lambda: 0
    picture: Callable[[], list[dict[str, Any]]] = list


def share_out(
    plan: Plan,
    settings: Settings,
    experts: Experts,
    runner: Runner,
    pools: Pools,
    cache: RadixCache,
    store: CheckpointStore | None,
    event: Event,
    foreign: Foreign | None = None,
    give_back: Callable[[Sequence[int]], None] = lambda slabs: None,
) -> Callable[[Residency], Balancing]:
    """What makes the scheduler's `Balancing`. Sizes that were given, and those of a preset that does not grow, are pinned."""
    preset = PRESETS[settings.preset]
    kv = settings.kv_tokens or (None if preset.kv_grows else plan.kv_tokens)
    slots = settings.moe_slots or (None if preset.experts_grow else plan.moe_slots)

    def make(residency: Residency) -> Balancing:
        mover = Mover(pools, cache, store, runner, experts.slots, residency, give_back=give_back)
        outlook = Outlook(pools, plan.tier.window_tokens, experts.curve, experts.miss_s, experts.misses)
        if store is not None and pools.states is not None:
            outlook.replays = Replays(cache, store, pools.states)
            residency.enters = outlook.replays.enters
        return Balancing(
            mover,
            outlook,
            event,
            foreign=foreign,
            kv_pin=kv,
            slots_pin=(slots or None) if mover.experts_move else None,
            planned_tokens=plan.kv_tokens,
            planned_slots=plan.moe_slots or None,
        )

    return make


def serve_with(memory: Balancing, experts: Experts) -> None:
    """Experts are served in another way from now on; their old slots hold nothing any more. Call between steps. Slabs that they
    no longer use are not shared out again: it is as if they had been served so from the start."""
    memory.mover.serve_with(experts.slots)
    memory.outlook.serve_with(experts.curve, experts.miss_s, experts.misses)
    memory.sizes.serve_anew()
    if not memory.mover.experts_move:
        memory.budget = max(memory.start.slabs, memory.mover.split.slabs + memory.lent)
    memory.tell_changed()


def process_memory(run: Mapping[str, Any]) -> dict[str, Any]:
    """What this process holds, in bytes; `run` is what the loaded model says about itself."""
    planned = run.get("memory") or {}
    return {
        "planned_bytes": planned.get("planned_bytes"),
        "actual_bytes": planned.get("actual_bytes"),
        "resident_bytes": resident_bytes(),
        "high_water_bytes": high_water_bytes(),
    }
