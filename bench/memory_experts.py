"""The expert slots of a modelled engine: the real slot table and policy, driven by recorded routing over and over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise

import numpy as np

from engine.experts.curves import Curve
from engine.experts.record import Stream
from engine.experts.replay import DECODE_ROWS, cut
from engine.experts.slots import SlotTable

Step = list[tuple[int, np.ndarray]]


class Experts:
    """`capacity` slots exist, `slots` of them are on offer at first; `curve` learns from what is routed. A stand-in for an
    executor in moves: see scheduler.moves.ExpertSlots."""

    def __init__(self, stream: Stream, capacity: int, slots: int, curve: Curve | None = None) -> None:
        self.least = stream.top_k
        self.table = SlotTable(stream.layers, stream.experts, capacity)
        self.curve = curve
        self.misses: list[int] = []  # of each decode step so far
        self.routed = 0
        self._steps = cycle(steps(stream))
        self.withdraw(range(slots, capacity))

    def step(self) -> int:
        """The next decode step, after the prompts that the recording has before it; returns its misses."""
        for step in self._steps:
            decodes, missed = len(step[0][1]) <= DECODE_ROWS, 0
            for layer, ids in step:
                if self.curve is not None:
                    self.curve.note(layer, ids)
                for rows in cut(ids, self.table.slots):
                    admission = self.table.admit(layer, rows)
                    missed += admission.misses
                    self.routed += decodes * len(admission.experts)
            if decodes:
                self.misses.append(missed)
                return missed
        raise ValueError("the recording has no decode step")

    def worth(self, slots: Sequence[int]) -> float:
        """See ExpertSlots."""
        held = self.table.worth[np.asarray(slots)]
        return float(np.exp2(held[np.isfinite(held)]).sum())

    def offer(self, slots: Sequence[int]) -> None:
        """See ExpertSlots."""
        self.table.offer(np.asarray(slots, dtype=np.int64))

    def withdraw(self, slots: Sequence[int]) -> int:
        """See ExpertSlots."""
        chosen = np.asarray(slots, dtype=np.int64)
        held = int((self.table.holder[chosen] >= 0).sum())
        self.table.withdraw(chosen)
        return held

    def verify(self) -> None:
        """See ExpertSlots."""
        self.table.check()


def steps(stream: Stream) -> list[Step]:
    """The accesses of each step."""
    accesses = list(stream)
    starts = [0, *(np.flatnonzero(np.diff(stream.steps())) + 1).tolist(), len(accesses)]
    return [accesses[start:end] for start, end in pairwise(starts)]


def decode_steps(stream: Stream) -> Iterator[Step]:
    """Those that decode."""
    return (step for step in steps(stream) if len(step[0][1]) <= DECODE_ROWS)


def missed(stream: Stream, slots: int, count: int) -> list[int]:
    """Misses of each of the first `count` decode steps with `slots` slots all the time."""
    experts = Experts(stream, slots, slots)
    while len(experts.misses) < count:
        experts.step()
    return experts.misses
