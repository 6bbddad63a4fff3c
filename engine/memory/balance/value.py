"""What a split costs: seconds of an expected turn."""

from __future__ import annotations

from engine.memory.balance.view import Prediction, View
from engine.memory.split import Split


def step_s(view: View, slots: int) -> float:
    """Seconds of one decode step with `slots` expert slots."""
    return view.step_s + view.misses(slots) * view.miss_s


def predict(view: View, split: Split) -> Prediction:
    """See Balancer.predict."""
    slots = view.slots(split)
    misses = view.misses(slots)
    seconds = view.step_s + misses * view.miss_s
    moved = sum(max(0, view.split.get(tenant) - split.get(tenant)) for tenant in ("kv", "state", "experts"))
    return Prediction(
        decode_tokens_per_s=1 / seconds if seconds > 0 else 0.0,
        window_tokens=min(view.window_tokens, view.kv_tokens(split)),
        seconds_to_apply=moved * view.slab_s,
        misses_per_step=misses,
        miss_rate=misses / view.routed if view.routed else None,
    )
