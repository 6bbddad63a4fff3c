"""How many experts a step would miss with any number of slots, learnt from the routing as it happens.

Both policies are stack algorithms: what an expert is worth does not depend on how many slots there are. By recency (`lru`) the
curve is exact, by frequency it is the rank by worth, which replays of recorded routing confirm to well under one per cent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.experts.policy import DEFAULT, HALF_LIFE_ROWS
from engine.experts.replay import DECODE_ROWS
from engine.kernels import _cpu

HALF_LIFE_STEPS = 512.0  # a step so old counts half as much as one now


class Curve:
    """`policy` is the slot table's own, a name of policy.POLICIES. Steps of more rows than a decode batch has are prefill: they
    change what would lie in slots and are not counted. With infinite `half_life_steps` nothing is forgotten."""

    def __init__(
        self, layers: int, experts: int, policy: str = DEFAULT, half_life_steps: float = HALF_LIFE_STEPS
    ) -> None:
        half_life_rows = {"lru": 0.0, "frequency": HALF_LIFE_ROWS}[policy]
        self._made = (layers, experts, half_life_rows, half_life_steps, DECODE_ROWS)
        self._counts = _cpu.Curve(*self._made)

    def note(self, layer: int, routed: npt.NDArray[np.integer[Any]]) -> None:
        """`layer` routes to `routed` [M, top_k], contiguous, in this step. Layers ascend within a step. Raises ValueError
        or IndexError for anything else, and then nothing is noted."""
        self._counts.note(layer, routed)

    @property
    def steps(self) -> int:
        """Decode steps seen."""
        return self._counts.steps()

    @property
    def asked(self) -> float:
        """Distinct experts that one step asks for, summed over layers, lately."""
        return self._counts.asked()

    def misses(self, slots: int) -> float:
        """Those of them that are not in one of `slots` slots."""
        return self._counts.misses(slots)

    def rate(self, slots: int) -> float:
        """The same as a share of those asked for; 0 before the first step."""
        asked = self.asked
        return self.misses(slots) / asked if asked else 0.0

    def reset(self) -> None:
        """Forget everything."""
        self._counts = _cpu.Curve(*self._made)
