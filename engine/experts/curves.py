"""How many experts a step would miss with any number of slots, learnt from the routing as it happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.experts.policy import DEFAULT

HALF_LIFE_STEPS = 512.0  # a step so old counts half as much as one now


class Curve:
    """`policy` is the slot table's own. Steps of more rows than a decode batch has are prefill: they change what would lie
    in slots and are not counted."""

    def __init__(
        self, layers: int, experts: int, policy: str = DEFAULT, half_life_steps: float = HALF_LIFE_STEPS
    ) -> None:
        self.layers, self.experts, self.policy = layers, experts, policy
        self._half_life = half_life_steps
        self.reset()

    def note(self, layer: int, routed: npt.NDArray[np.integer[Any]]) -> None:
        """`layer` routes to `routed` [M, top_k] in this step. Layers ascend within a step."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Decode steps seen."""
        raise NotImplementedError

    def misses(self, slots: int) -> float:
        """Experts of one step that are not in a slot, lately."""
        raise NotImplementedError

    def rate(self, slots: int) -> float:
        """The same as a share of the experts asked for; 0 before the first step."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget everything, as for another model."""
        raise NotImplementedError
