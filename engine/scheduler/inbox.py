"""Messages from other threads, and what of them a running step must know before they are handled."""

from __future__ import annotations

import queue
from array import array
from typing import Any

from engine.cache.node import token_array


class Inbox:
    """`post` may be called from any thread, everything else from the loop's."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._arrivals: dict[str, array[int]] = {}

    def post(self, message: dict[str, Any]) -> None:
        """Queue a message. A cancel and the arrival of a real request are seen by the running step at once."""
        if message["t"] == "cancel":
            self._cancelled.add(message["rid"])
        elif message["t"] == "submit" and message.get("priority", "main") != "background":
            self._arrivals[message.get("rid", "")] = _prompt(message)
        self._messages.put(message)

    def get(self, block: bool, timeout_s: float | None) -> dict[str, Any]:
        """The next message. Raises queue.Empty when there is none, or none within `timeout_s` when blocking."""
        return self._messages.get(block, timeout_s)

    def cancelled(self, rid: str) -> bool:
        """A cancel of `rid` was posted."""
        return rid in self._cancelled

    def handled(self, rid: str) -> None:
        """A submit or a cancel of `rid` has been dealt with."""
        self._arrivals.pop(rid, None)
        self._cancelled.discard(rid)

    def arrived(self, rid: str) -> None:
        """The submit of `rid` has been dealt with; a cancel may be on its way."""
        self._arrivals.pop(rid, None)

    def arrivals(self) -> list[array[int]]:
        """Prompts of real requests that are posted and not handled yet."""
        return list(self._arrivals.values())


def _prompt(message: dict[str, Any]) -> array[int]:
    """The tokens of a submit that nobody has checked yet; none when they are no tokens."""
    try:
        return token_array(message["tokens"])
    except (KeyError, TypeError, OverflowError):
        return token_array([])
