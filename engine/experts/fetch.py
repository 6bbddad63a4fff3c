"""Bringing experts into fast-tier slots: what every source of experts offers, wherever it reads from.

A fetcher knows where each slot lies; callers only name slots. It works beside the caller: `start` returns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Ticket(Protocol):
    """Some experts on their way, in the order they were named."""

    def wait(self, i: int) -> None:
        """Return when the i-th expert and all named before it are whole in their slots. Raises the first thing that went
        wrong with one of them (WeightsError, OSError)."""

    def wait_all(self) -> None:
        """Return when every expert is. Raises the first failure, after all the others have ended."""

    def span(self) -> tuple[float, float]:
        """When the first byte came and when the last one had; only after `wait_all`."""


class Fetcher(Protocol):
    """Copies whole experts from their source into slots. One caller at a time; several tickets may be under way."""

    bytes_per_expert: int

    def start(self, layer: int, experts: Sequence[int], slots: Sequence[int], ahead: bool = False) -> Ticket:
        """Begin copying `experts` of MoE layer `layer` into `slots`, and return at once.

        With `ahead` it is not urgent: what is started without may overtake it. Nobody may read or reuse these slots until
        the ticket was waited for. Both sequences have equal lengths; none is a valid length.
        """

    def report(self) -> dict[str, Any]:
        """Plain data for statistics."""

    def close(self) -> None:
        """End the copying threads; what is under way is finished first."""
