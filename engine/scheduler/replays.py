"""What more checkpoints would save, and fewer would cost: every request is looked at before it resumes."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from engine.cache.checkpoints import CheckpointStore
from engine.cache.eviction import share
from engine.cache.node import Checkpoint
from engine.cache.radix import Match, RadixCache
from engine.memory.balance.replays import ReplayCurve
from engine.memory.pools import StatePool
from engine.scheduler.request import Request

REMEMBERED = 256  # checkpoints that were given up, whose KV may still be there
RUNGS = (0, 2, 4, 6, 7, 8)  # eighths of the capacity, for which the order of going is looked at


class Replays:
    """`curve` is told of requests; `live` states of the pool are no checkpoints."""

    def __init__(self, cache: RadixCache, store: CheckpointStore, pool: StatePool) -> None:
        self.curve = ReplayCurve()
        self._cache, self._store, self._pool = cache, store, pool
        self._live = pool.capacity - store.cap
        self._gone: deque[Checkpoint] = deque(maxlen=REMEMBERED)  # last given up first
        store.given_up = self._gone.appendleft

    def enters(self, request: Request, match: Match) -> None:
        """`request` is about to resume from `match`. Work ahead is not counted: nobody waits for it."""
        if request.ahead or not match.tokens:
            return
        kept, places = len(self._store), self._needed(match, request.side)
        if self._gone:
            there = {(c.node, c.position) for c in match.line}
            path = set(self._cache.path(request.tokens[: match.tokens], match.tokens))
            for rank, gone in enumerate(self._gone, start=1):
                if gone.node in path and gone.position <= match.tokens and (gone.node, gone.position) not in there:
                    places.append((max(kept, self._store.cap) + rank, gone.position))
        self.curve.note(match.tokens, places)

    def _needed(self, match: Match, side: bool) -> list[tuple[int, int]]:
        """(the least capacity at which it is still there, position) of each checkpoint on the way. With fewer, others go first:
        so that is looked at for a few capacities."""
        cap = self._store.cap
        beside = cap - share(side, cap)  # places that are meant for others
        least = {c.state: (max(cap, len(self._store)), c.position) for c in match.line}
        rungs = sorted({cap * eighths // 8 for eighths in RUNGS}, reverse=True)
        for rung, lower in pairwise(rungs):
            there = {c.state: place for place, c in enumerate(reversed(self._store.order(rung)), start=1 + beside)}
            for state, (_, position) in list(least.items()):
                if there[state] <= rung:
                    least[state] = (max(there[state], lower + 1), position)
        return list(least.values())

    def tokens(self, slabs: int) -> float:
        """Tokens that a turn is expected to compute again with so many slabs for states."""
        room = slabs * self._pool.cells.per_slab // self._pool.layers - self._live
        return self.curve.tokens(max(0, room))
