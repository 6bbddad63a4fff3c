"""Where each line has got to: what may be taken for work that nobody asked for, and what is given up last."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from engine.cache.lines import LIVE_SESSION_S, REMEMBERED
from engine.cache.node import Node


class Uses:
    """`now` counts uses; `clock` tells seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = 0
        self._time = clock
        self._ends: OrderedDict[str, tuple[float, Node]] = OrderedDict()  # the last page of each line's latest prompt

    def came(self, line: str, end: Node) -> None:
        """The latest prompt of `line` goes as far as `end`."""
        self._ends[line] = (self._time(), end)
        self._ends.move_to_end(line)
        while len(self._ends) > REMEMBERED:
            self._ends.popitem(last=False)

    def wanted(self) -> set[int]:
        """Ids of the nodes on the latest prompt of any live line. What lines have left, by an edit or for good, is not among them."""
        oldest = self._time() - LIVE_SESSION_S
        while self._ends and next(iter(self._ends.values()))[0] <= oldest:
            self._ends.popitem(last=False)
        found: set[int] = set()
        for _, end in self._ends.values():
            node: Node | None = end
            while node is not None and id(node) not in found:
                found.add(id(node))
                node = node.parent
        return found
