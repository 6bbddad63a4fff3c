"""A snapshot of the worker for `/v1/stats`: measured numbers, and the effective value of every setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.memory.plan import Plan
from engine.memory.pools import Pools
from engine.scheduler.loop import Scheduler

NOT_USED = "not used here"


def snapshot(
    scheduler: Scheduler,
    plan: Plan,
    pools: Pools,
    cache: RadixCache,
    store: CheckpointStore | None,
    experts: tuple[int, int],
    asked: Mapping[str, Any],
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """Plain data. Sizes in bytes, rates per second over the last ten; null: no data yet, or nothing of the kind here.

    `asked` are the run's options, `run` is what the loaded model says about itself.
    """
    slots = run.get("slots", plan.moe_slots)
    emulated = plan.device == "emulated"
    return {
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "requests": [
            {"rid": r.rid, "computed": r.computed, "tokens": len(r.tokens), "decoding": r.decoding}
            for r in scheduler.running
        ],
        "pages": {
            "total": pools.pages.capacity,
            "free": pools.pages.free,
            "cached": cache.pages,
            "evicted": cache.evicted_pages,
            "page_tokens": pools.page_tokens,
        },
        "states": None if pools.states is None else {"total": pools.states.capacity, "used": pools.states.used},
        "checkpoints": None
        if store is None
        else {
            "count": len(store),
            "bytes": store.bytes,
            "cap_bytes": store.cap_bytes,
            "evicted": store.evictions,
            "list": store.listing(),
        },
        "anticipation": {
            "computed": cache.marks.computed,
            "used": cache.marks.used,
            "wasted": cache.marks.wasted,
            "pending": cache.marks.pending,
        },
        "hibernation": NOT_USED if scheduler.hibernation is None else scheduler.hibernation.report(),
        "tokens": {"prefill": scheduler.prefill_rate.total, "decode": scheduler.decode_rate.total},
        "tokens_per_s": {"prefill": scheduler.prefill_rate.per_s(), "decode": scheduler.decode_rate.per_s()},
        "experts": {**run.get("experts", {}), "hits": experts[0], "misses": experts[1], "slots": slots},
        "arena": {"slab_bytes": pools.arena.slab_bytes, "slabs": pools.arena.map()},
        "memory": run.get("memory"),
        "cores": run.get("cores"),
        "plan": {"tenants": plan.tenants, "total_bytes": plan.total_bytes, "available_bytes": plan.available_bytes},
        "settings": {
            "preset": plan.preset,
            "window_tokens": scheduler.limits.window_tokens,
            "kv_tokens": plan.kv_tokens if scheduler.memory is None else scheduler.memory.kv_tokens,
            "kv_dtype": plan.kv_dtype,
            "moe_backend": run.get("backend", plan.moe_backend),
            "moe_slots": slots or NOT_USED,
            "device": plan.device,
            "device_memory": (plan.device_memory or NOT_USED) if emulated else NOT_USED,
            "host_memory": (plan.host_memory or NOT_USED) if plan.bank != "none" else NOT_USED,
            "activations": run.get("activations", asked["activations"]),
            "emulate_fill_gbs": (asked["emulate_fill_gbs"] or NOT_USED) if emulated else NOT_USED,
            "emulate_host_gbs": (asked["emulate_host_gbs"] or NOT_USED) if emulated else NOT_USED,
            "checkpoint_bytes": NOT_USED if store is None else store.cap_bytes,
            "max_running": plan.max_running,
            "chunk_tokens": plan.chunk_tokens,
            "threads": asked["threads"],
        },
    }
