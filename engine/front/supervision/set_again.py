"""A new worker is asked for what was set by hand in the one before it, ahead of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.front.supervision.by_hand import ByHand, words
from engine.front.supervision.pending import error_of
from engine.front.supervision.wire import Wire


class SetAgain:
    """`warn` is told what cannot be had any more."""

    def __init__(self, by_hand: ByHand, wire: Wire, warn: Callable[[str], None]) -> None:
        self._by_hand = by_hand
        self._wire = wire
        self._warn = warn
        self._open: dict[int, dict[str, Any]] | None = None  # by the number of the question; None: not yet sent

    def new_life(self) -> None:
        self._open = None

    def ask(self) -> None:
        """Once in a worker's life."""
        if self._open is not None:
            return
        self._open = {}
        for order in self._by_hand.orders():
            n = self._wire.number()
            self._open[n] = order
            self._wire.send({"t": "memory", "op": "apply", **order, "again": True, "n": n})

    @property
    def waits(self) -> bool:
        """For an answer."""
        return bool(self._open)

    def answered(self, message: dict[str, Any]) -> bool:
        """Whether this was an answer to one of its questions."""
        order = (self._open or {}).pop(message["n"], None)
        if order is None:
            return False
        if "error" in message:
            self._by_hand.forget(order)
            why = error_of(message["error"]).message
            self._warn(f"What was set by hand ({words(order)}) is lost with the worker that had it: {why}")
        return True
