"""What a split costs: the seconds of an expected turn, and of computing again what had no room."""

from __future__ import annotations

from collections.abc import Sequence

from engine.memory.balance.view import Line, Prediction, View
from engine.memory.split import Split


def step_s(view: View, split: Split) -> float:
    """Seconds of one decode step."""
    return view.step_s + view.misses(view.slots(split)) * view.miss_s


def turn_s(view: View, split: Split) -> float:
    """Seconds of one turn: its steps, and the tokens that are expected to be computed again because KV or checkpoints have no
    room."""
    steps = view.steps_per_turn / max(1.0, view.rows)  # turns that decode together share their steps
    again = replayed(view, split.kv_slabs)
    if view.restart_tokens is not None:
        again += view.restart_tokens(split.state_slabs)
    return steps * step_s(view, split) + again * view.replay_s


def replayed(view: View, kv_slabs: int) -> float:
    """Tokens expected to be computed again in one turn, with what is needed for sure taken off first.

    The cache gives up what is least likely to be used again, so lines keep their room in the order of `reuse`. While nothing
    runs, the first of them is given what it is expected to grow by.
    """
    room = float((kv_slabs - view.need_kv) * view.tokens_per_slab)
    lost = 0.0
    for line, tokens in wanted(view.lines):
        lost += line.reuse * max(0.0, tokens - max(0.0, room))
        room -= tokens
    return lost


def wanted(lines: Sequence[Line]) -> list[tuple[Line, float]]:
    """The lines that do not run and the tokens that each is to have, most likely to be used again first; of equals the last."""
    resting = sorted((line for line in reversed(lines) if not line.running), key=lambda line: -line.reuse)
    busy = len(resting) < len(lines)
    return [(line, line.tokens + (line.growth if not i and not busy else 0.0)) for i, line in enumerate(resting)]


def predict(view: View, split: Split) -> Prediction:
    """See Balancer.predict."""
    misses = view.misses(view.slots(split))
    seconds = view.step_s + misses * view.miss_s
    moved = sum(max(0, view.split.get(tenant) - split.get(tenant)) for tenant in ("kv", "state", "experts"))
    return Prediction(
        decode_tokens_per_s=1 / seconds if seconds > 0 else 0.0,
        window_tokens=min(view.window_tokens, view.kv_tokens(split)),
        seconds_to_apply=moved * view.slab_s,
        misses_per_step=misses,
        miss_rate=misses / view.routed if view.routed else None,
    )
