"""What an expert in a slot is worth. The slot table evicts whatever is worth least; a policy says what that is.

Real routing was recorded and replayed (`ft bench experts --replay`). Recency alone is a poor guide: layers take turns, so a plain
LRU evicts exactly what comes next round. How often an expert was used over the last hundred tokens or so predicts best. Router
probabilities of experts that were not chosen, the token itself and the next layers' routers applied early were tried: each
changed miss rates by about one per cent, because they tell about this token, and victims are chosen for the next ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Worth = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

HALF_LIFE_ROWS = 128.0  # 32 to 256 are within 5 % of the best on recorded routing at 11 and 37 % of the experts


class Policy(Protocol):
    """`worth` [layers, experts]: higher stays longer, -inf for experts never used."""

    worth: Worth

    def touch(self, layer: int, routed: npt.NDArray[np.integer], experts: Ids) -> None:
        """A step of `layer` routed to `routed` [M, top_k], whose distinct values are `experts`. Mutates `worth` of these
        alone, so that a table need not look at the others."""


class Recency:
    """Least recently used goes first."""

    def __init__(self, layers: int, experts: int) -> None:
        self.worth: Worth = np.full((layers, experts), -np.inf)
        self._clock = 0

    def touch(self, layer: int, routed: npt.NDArray[np.integer], experts: Ids) -> None:
        """See Policy."""
        self._clock += 1
        self.worth[layer, experts] = self._clock


class Frequency:
    """Uses per row, older ones counting half as much every `half_life` rows; see Policy.

    Worth is the base-2 logarithm of the sum over uses of 2^(row of use / half_life). As time passes all sums shrink alike, so
    that only experts in use need an update and the order of the others stays as it is.
    """

    def __init__(self, layers: int, experts: int, half_life: float = HALF_LIFE_ROWS) -> None:
        self.worth: Worth = np.full((layers, experts), -np.inf)
        self._half_life = half_life
        self._row = 0  # of all rows so far, the first of the step under way
        self._layer, self._rows = layers, 0  # of the last touch

    def touch(self, layer: int, routed: npt.NDArray[np.integer], experts: Ids) -> None:
        """See Policy. The last rows of a step are the youngest."""
        if layer <= self._layer:  # layers ascend within a step
            self._row += self._rows
        rows, top_k = routed.shape
        self._layer, self._rows = layer, rows
        used: float | Worth = (self._row + rows - 1) / self._half_life
        if rows > 1:
            weights = np.exp2(np.arange(1 - rows, 1) / self._half_life).repeat(top_k)
            used = used + np.log2(np.bincount(routed.reshape(-1), weights, self.worth.shape[1])[experts])
        self.worth[layer, experts] = np.logaddexp2(self.worth[layer, experts], used)


POLICIES: dict[str, Callable[[int, int], Policy]] = {"frequency": Frequency, "lru": Recency}
DEFAULT = "frequency"
