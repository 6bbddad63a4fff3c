"""Prefill streaming: while a layer is computed, the complete expert sets of the next ones are on their way to slots.

What is streamed takes the place of what is worth least, which is what was streamed two layers before and not used much:
two layers' worth of slots suffice, and what the rows used stays, so that decode starts warm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.device.clock import Clock
from engine.experts.fetch import Fetcher, Ticket
from engine.experts.slots import SlotTable
from engine.experts.split import Rates

DEPTH = 2  # layers that may be on their way at once


@dataclass(slots=True)
class _Coming:
    """A layer on its way: all its slots, so that nobody takes one, and those of them that are being filled."""

    ticket: Ticket
    slots: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]


class Stream:
    """`double` False: nothing is streamed ahead, for measuring what it gives. `bytes` counts what was streamed ahead;
    `blocked` is where the caller adds seconds it waited for other fills."""

    def __init__(self, table: SlotTable, fetcher: Fetcher, rates: Rates, clock: Clock, double: bool = True) -> None:
        self._table, self._fetcher, self._rates, self._clock, self.double = table, fetcher, rates, clock, double
        self._layers, self._experts = table.slot_of.shape
        self._coming: dict[int, _Coming] = {}
        self._row_s = 0.0  # seconds per row of the last layer that had several
        self._last_layer, self._last_time = -1, 0.0
        self.blocked = 0.0
        self.bytes = 0

    def arrive(self, layer: int, rows: int) -> None:
        """Called first for every layer: waits for what was streamed into it. Raises what the fetcher met. A layer that comes
        out of turn waits for everything that is on its way."""
        now = self._clock.now()
        if rows > 1 and self._last_layer == layer - 1:
            self._row_s = (now - self._last_time - self.blocked) / rows
        wanted = [layer] if min(self._coming, default=-1) == layer else list(self._coming)
        for key in wanted:
            coming = self._coming.pop(key)
            try:
                coming.ticket.wait_all()
                self._rates.filled(len(coming.filled) * self._fetcher.bytes_per_expert, coming.ticket.span())
            except BaseException:
                self._table.drop(coming.filled)
                raise
            finally:
                self._table.pinned[coming.slots] = False
        self._last_layer, self._last_time = layer, now
        self.blocked = self._clock.now() - now

    def pays(self, layer: int, rows: int, distinct: int, share: float = 1.0) -> bool:
        """Whether to stream the layers after this one, whose step of `rows` rows routed to `distinct` experts.

        Serving only what is routed cannot start before the routing is known; streaming everything can, and hides behind
        the computation of a layer. `share` of the misses would be filled while the others are computed in place.
        """
        if not self.double or rows < 2 or layer + 1 >= self._layers or self._table.slots < DEPTH * self._experts:
            return False
        missing = self._experts - int(np.count_nonzero(self._table.slot_of[layer + 1] >= 0))
        whole = missing * self._fetcher.bytes_per_expert / self._rates.fill.value
        routed = whole * distinct / self._experts * share
        computing = self._row_s * rows
        return bool(max(computing, whole) < computing + routed)

    def ahead(self, layer: int, free: bool = False) -> None:
        """Have the layers after this one come that are not on their way yet, as far as slots allow. `free`: this layer was
        computed, its slots may be taken."""
        table = self._table
        own = self._resident(layer)
        if not free:
            table.pinned[own] = True
        for following in range(layer + 1, min(layer + 1 + DEPTH, self._layers)):
            if following in self._coming:
                continue
            resident = self._resident(following)
            missing = self._experts - len(resident)
            table.pinned[resident] = True
            if missing + int(np.count_nonzero(table.pinned)) > table.slots:
                table.pinned[resident] = False
                break
            admitted = table.admit(following, np.arange(self._experts), used=False)
            table.pinned[admitted.slots] = True
            filled = admitted.slots[admitted.fills]
            ticket = self._fetcher.start(
                following, admitted.experts[admitted.fills].tolist(), filled.tolist(), ahead=True
            )
            self._coming[following] = _Coming(ticket, admitted.slots, filled)
            self.bytes += missing * self._fetcher.bytes_per_expert
        if not free:
            table.pinned[own] = False

    def finish(self) -> None:
        """Wait for everything that is on its way, whoever wanted it."""
        self.arrive(-2, 0)

    def _resident(self, layer: int) -> npt.NDArray[np.int64]:
        slots: npt.NDArray[np.int64] = self._table.slot_of[layer]
        return slots[slots >= 0]
