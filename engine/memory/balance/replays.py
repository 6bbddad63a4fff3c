"""How many tokens requests compute again for lack of a checkpoint, for any number of checkpoints, learnt from requests as they come."""

from __future__ import annotations

from collections.abc import Iterable

HALF_LIFE = 48.0  # requests after which one counts half as much
SETTLED = 8  # requests after which the curve means something
LARGE = 1e12  # weights are brought down to one again before they lose precision


class ReplayCurve:
    """Requests fall in weight with age; with infinite `half_life` nothing is forgotten. Never rises with the capacity."""

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self.requests = 0
        self._growth = 2.0 ** (1.0 / half_life)  # of the weight of each request over the one before
        self._weight = 1.0
        self._weights = self._cached = 0.0
        self._saved: dict[int, float] = {}  # by the least capacity at which they are

    @property
    def known(self) -> bool:
        return self.requests >= SETTLED

    def note(self, cached: int, places: Iterable[tuple[int, int]]) -> None:
        """A request came of which `cached` tokens had been computed. `places` are (capacity, position): a store of at least that
        many checkpoints has one at this position of it, 0 < position <= cached."""
        self.requests += 1
        self._weight *= self._growth
        if self._weight > LARGE:
            self._settle()
        self._weights += self._weight
        self._cached += self._weight * cached
        deepest = 0
        for capacity, position in sorted(places):
            if position > deepest:
                self._saved[capacity] = self._saved.get(capacity, 0.0) + self._weight * (position - deepest)
                deepest = position

    def tokens(self, capacity: int) -> float:
        """Tokens that a request is expected to compute again with so many checkpoints; 0 before the first one."""
        if not self.requests:
            return 0.0
        saved = sum(tokens for least, tokens in self._saved.items() if least <= capacity)
        return max(0.0, self._cached - saved) / self._weights

    def _settle(self) -> None:
        scale = 1.0 / self._weight
        self._weight, self._weights, self._cached = 1.0, self._weights * scale, self._cached * scale
        self._saved = {least: tokens * scale for least, tokens in self._saved.items() if tokens * scale > 1e-9}
