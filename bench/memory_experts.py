"""The expert slots of a modelled engine: the real slot table and policy, driven by recorded routing over and over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise

import numpy as np

from engine.experts.curves import Curve
from engine.experts.record import Stream
from engine.experts.replay import DECODE_ROWS, cut
from engine.experts.slots import SlotTable
from engine.experts.tenancy import Tenancy

Step = list[tuple[int, np.ndarray]]


class Experts:
    """`capacity` slots exist, `leased` of them at first. `curve` is told what is routed. See engine.bench.memory.play.Experts."""

    def __init__(self, stream: Stream, capacity: int, leased: Sequence[int]) -> None:
        self.least, self.most = stream.top_k, stream.layers * stream.experts
        self.curve = Curve(stream.layers, stream.experts)
        self.missed = 0
        self._table = SlotTable(stream.layers, stream.experts, capacity)
        tenancy = Tenancy(self._table, self.least, leased)
        self.worth, self.offer, self.withdraw, self.ask = tenancy.worth, tenancy.add, tenancy.remove, tenancy.ask
        self._steps = cycle(steps(stream))

    def step(self) -> int:
        """The next decode step, after the prompts that the recording has before it; returns its misses."""
        for step in self._steps:
            missed = 0
            for layer, ids in step:
                self.curve.note(layer, ids)
                for rows in cut(ids, self._table.slots):
                    missed += self._table.admit(layer, rows).misses
            if len(step[0][1]) <= DECODE_ROWS:
                self.missed += missed
                return missed
        raise ValueError("the recording has no decode step")

    def verify(self) -> None:
        """Raises AssertionError when the table contradicts itself."""
        self._table.check()


def steps(stream: Stream) -> list[Step]:
    """The accesses of each step."""
    accesses = list(stream)
    starts = [0, *(np.flatnonzero(np.diff(stream.steps())) + 1).tolist(), len(accesses)]
    return [accesses[start:end] for start, end in pairwise(starts)]


def missed(stream: Stream, slots: int, count: int) -> list[int]:
    """Misses of each of the first `count` decode steps with `slots` slots all the time."""
    experts = Experts(stream, slots, range(slots))
    return [experts.step() for _ in range(count)]
