"""Recorded routing against policies: how many experts would have been missing from the slots, and how few could have been.

Decode steps are counted; steps of more rows than a decode batch has are prefill: they change the slots and are not counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.experts.policy import POLICIES, Frequency, Ids, Policy, Worth
from engine.experts.record import Stream
from engine.experts.slots import SlotTable
from engine.experts.waves import waves

DECODE_ROWS = 16


@dataclass(slots=True)
class Counted:
    """Distinct experts that decode steps routed to, and those of them that were not in a slot."""

    accesses: int = 0
    misses: int = 0

    @property
    def rate(self) -> float:
        return self.misses / self.accesses if self.accesses else 0.0


class Cache(Protocol):
    def admit(self, layer: int, routed: npt.NDArray[np.integer]) -> tuple[int, int]:
        """(distinct experts, misses) of one access, after which the cache has changed as its policy wants."""


def replay(stream: Stream, slots: int, cache: str | Cache) -> Counted:
    """The decode steps of `stream` against `slots` slots under a policy of POLICIES, a name of CACHES, or `belady`."""
    if isinstance(cache, str):
        cache = make(cache, stream, slots)
    counted = Counted()
    for layer, ids in stream:
        accesses, misses = cache.admit(layer, ids)
        if len(ids) <= DECODE_ROWS:
            counted.accesses += accesses
            counted.misses += misses
    return counted


def make(name: str, stream: Stream, slots: int) -> Cache:
    """Raises KeyError for an unknown name, ValueError for fewer slots than one row needs."""
    if slots < stream.top_k:
        raise ValueError(f"{slots} slots cannot hold one row's {stream.top_k} experts")
    if name == "belady":
        return Table(stream, slots, Belady(stream, slots))
    if name in POLICIES:
        return Table(stream, slots, POLICIES[name](stream.layers, stream.experts))
    return CACHES[name](stream, slots)


class Table:
    """The engine's own slot table, driven as its executors drive it."""

    def __init__(self, stream: Stream, slots: int, policy: Policy) -> None:
        self._table = SlotTable(stream.layers, stream.experts, slots, policy)

    def admit(self, layer: int, routed: npt.NDArray[np.integer]) -> tuple[int, int]:
        distinct = misses = 0
        for rows in cut(routed, self._table.slots):
            admission = self._table.admit(layer, rows)
            distinct += len(admission.experts)
            misses += admission.misses
        return distinct, misses


def cut(routed: npt.NDArray[np.integer], slots: int) -> Iterator[npt.NDArray[np.integer]]:
    """The rows as executors serve them: at once where their experts fit the slots, else in waves."""
    if routed.size <= slots or len(np.unique(routed)) <= slots:
        yield routed
    else:
        for rows in waves(routed.astype(np.int32), slots):
            yield routed[rows]


class Belady:
    """The optimum, which knows the future: what is used again last goes first (Belady, 1966). A Policy for one stream.

    Slots used by a step are never its victims, as everywhere. No policy that fills every miss has fewer misses.
    """

    def __init__(self, stream: Stream, slots: int) -> None:
        self.worth: Worth = np.full((stream.layers, stream.experts), -np.inf)
        accesses = [(layer, np.unique(rows)) for layer, ids in stream for rows in cut(ids, slots)]
        following = np.full((stream.layers, stream.experts), np.inf)
        self._again: list[Worth] = []
        for i in range(len(accesses) - 1, -1, -1):
            layer, experts = accesses[i]
            self._again.append(-following[layer, experts])
            following[layer, experts] = i

    def touch(self, layer: int, routed: npt.NDArray[np.integer], experts: Ids) -> None:
        """See Policy."""
        self.worth[layer, experts] = self._again.pop()


class Foresight:
    """What knowing the routing of the next `tokens` tokens exactly would give, with frequency for everything beyond."""

    def __init__(self, stream: Stream, slots: int, tokens: int) -> None:
        self._frequency = Frequency(stream.layers, stream.experts)
        self._optimum = Belady(stream, slots)
        self._table = SlotTable(stream.layers, stream.experts, slots, self._frequency)
        self._known = tokens * stream.layers
        self._access = 0

    def admit(self, layer: int, routed: npt.NDArray[np.integer]) -> tuple[int, int]:
        distinct = misses = 0
        for rows in cut(routed, self._table.slots):
            held = np.flatnonzero(self._table.holder >= 0)
            holder = self._table.holder[held]
            again = -self._optimum.worth.reshape(-1)[holder]
            soon = again - self._access < self._known
            self._table.worth[held] = np.where(soon, 1e12 - again, self._frequency.worth.reshape(-1)[holder])
            admission = self._table.admit(layer, rows)
            self._optimum.touch(layer, rows, admission.experts)
            self._access += 1
            distinct += len(admission.experts)
            misses += admission.misses
        return distinct, misses


class Static:
    """Experts that stay. `chosen`: those most used by the last prompt; otherwise the first ones of every layer."""

    def __init__(self, stream: Stream, slots: int, chosen: bool) -> None:
        self._slots, self._chosen = slots, chosen
        self._counts = np.zeros((stream.layers, stream.experts), dtype=np.int64)
        self._resident = np.zeros((stream.layers, stream.experts), dtype=np.bool_)
        order = np.arange(self._resident.size).reshape(stream.experts, stream.layers).T  # layers take turns
        self._place(-order)
        self._decoding = True

    def admit(self, layer: int, routed: npt.NDArray[np.integer]) -> tuple[int, int]:
        if self._chosen and len(routed) > DECODE_ROWS:
            if self._decoding:
                self._counts[:] = 0
            self._decoding = False
            np.add.at(self._counts[layer], routed.reshape(-1), 1)
        elif self._chosen and not self._decoding:
            self._place(self._counts)
            self._decoding = True
        experts = np.unique(routed)
        return len(experts), int(np.count_nonzero(~self._resident[layer, experts]))

    def _place(self, worth: npt.NDArray[np.int64]) -> None:
        self._resident[:] = False
        self._resident.reshape(-1)[np.argsort(-worth.reshape(-1), kind="stable")[: self._slots]] = True


class S3Fifo:
    """Admission by a short probation (Yang et al., "FIFO queues are all you need for cache eviction", 2023).

    New experts enter a small queue, a tenth of the slots; those used again there, or lately evicted from it, enter the main
    queue, where use buys another round. What a step uses is never its victim.
    """

    def __init__(self, stream: Stream, slots: int) -> None:
        self._slots, self._small_slots = slots, max(1, slots // 10)
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._uses: dict[int, int] = {}  # of residents, at most 3
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._experts = stream.experts

    def admit(self, layer: int, routed: npt.NDArray[np.integer]) -> tuple[int, int]:
        distinct = missed = 0
        for rows in cut(routed, self._slots):
            keys = (layer * self._experts + np.unique(rows).astype(np.int64)).tolist()
            busy = set(keys)
            for key in keys:
                distinct += 1
                if key in self._uses:
                    self._uses[key] = min(3, self._uses[key] + 1)
                    continue
                missed += 1
                if len(self._uses) >= self._slots:
                    self._evict(busy)
                (self._main if key in self._ghosts else self._small).append(key)
                self._ghosts.pop(key, None)
                self._uses[key] = 0
        return distinct, missed

    def _evict(self, busy: set[int]) -> None:
        while True:
            queue = self._next(busy)
            key = queue.popleft()
            if key in busy:
                queue.append(key)
            elif self._uses[key]:
                self._uses[key] = 0 if queue is self._small else self._uses[key] - 1
                self._main.append(key)
            else:
                del self._uses[key]
                if queue is self._small:
                    self._ghosts[key] = None
                    if len(self._ghosts) > self._slots:
                        self._ghosts.popitem(last=False)
                return

    def _next(self, busy: set[int]) -> deque[int]:
        """The queue that gives up a slot: the small one when it has more than its share."""
        queues = (self._small, self._main) if len(self._small) > self._small_slots else (self._main, self._small)
        return next(queue for queue in queues if any(key not in busy for key in queue))


CACHES: dict[str, Callable[[Stream, int], Cache]] = {
    **{f"ahead{n}": lambda stream, slots, n=n: Foresight(stream, slots, n) for n in (1, 2, 4, 8, 16)},  # type: ignore[misc]
    "s3fifo": S3Fifo,
    "prefill": lambda stream, slots: Static(stream, slots, chosen=True),
    "blind": lambda stream, slots: Static(stream, slots, chosen=False),
}
