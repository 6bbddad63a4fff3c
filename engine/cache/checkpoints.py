"""Which saved recurrent states are kept under a hard byte cap.

Eviction goes by replay cost: tokens to the nearest surviving checkpoint before it, times the weight of its class, halved
for every `cap`-ful of uses of the store it sat through unused (else a dead session with long gaps would hold the store
for ever). Three kinds are special: the last head checkpoint of a live session is never evicted; the newest checkpoint of
a live session goes only when nothing else is left; a side request never evicts what a main request uses. A checkpoint
whose KV page is evicted is dropped at once.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable

from engine.cache.node import Checkpoint, Node, usable
from engine.cache.radix import Match, RadixCache
from engine.memory.pools import StatePool
from engine.protocol import EditPoint

WEIGHTS = {"head": 16, "turn": 8, "frontier": 6, "reminder": 6, "live": 4, "prompt": 2, "decode": 1}
LIVE_SESSION_S = 3600.0


class CheckpointStore:
    """Owns the state ids it hands out. `event(kind, fields)` is told of every creation and eviction."""

    def __init__(
        self,
        pool: StatePool,
        cap_bytes: int,
        grid: int = 1,
        event: Callable[[str, dict[str, object]], None] = lambda kind, fields: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cap_bytes = cap_bytes
        self.grid = grid
        self.evictions = 0
        self._pool = pool
        self._event = event
        self._clock = clock
        self._uses = 0
        self._reserved: set[int] = set()
        self._kept: dict[int, Checkpoint] = {}  # by state id
        self._heads: dict[str, Checkpoint] = {}  # session -> its deepest head checkpoint
        self._tips: dict[str, Checkpoint] = {}  # session -> the checkpoint it made or used last
        self._seen: dict[str, float] = {}  # session -> when it last used the store, least recent first

    @property
    def cap(self) -> int:
        """How many checkpoints the cap allows."""
        return self.cap_bytes // self._pool.state_bytes

    @property
    def bytes(self) -> int:
        """Held or reserved now; never above the cap."""
        return (len(self._kept) + len(self._reserved)) * self._pool.state_bytes

    def __len__(self) -> int:
        return len(self._kept)

    def used(self, match: Match, session: str, side: bool, edit_points: Iterable[EditPoint]) -> None:
        """A request of `session` resumes from `match`: refreshes that one checkpoint and the session's claims, and raises
        checkpoints of the line to the class its edit points give them."""
        self._touch_session(session)
        kinds = {point.position: point.kind for point in edit_points}
        for checkpoint in match.line:
            kind = kinds.get(checkpoint.position, checkpoint.kind)
            if WEIGHTS[kind] > WEIGHTS[checkpoint.kind]:
                checkpoint.kind = kind
        if match.checkpoint is not None:
            self._touch(match.checkpoint, session, side)
        for checkpoint in match.line:
            if checkpoint.kind == "head":
                checkpoint.side = checkpoint.side and side
                self._heads[session] = checkpoint

    def reserve(self, side: bool) -> int | None:
        """A state to snapshot into, evicting when the cap is reached; None when nothing may be evicted. The caller must
        `commit` or `cancel` it."""
        if not self._make_room(side) or not self._pool.free:
            return None
        state = self._pool.alloc()
        self._reserved.add(state)
        return state

    def adopt(self, state: int, side: bool) -> bool:
        """Take over a live state as a reserved one, without a copy. False when the cap leaves no room."""
        if not self._make_room(side):
            return False
        self._reserved.add(state)
        return True

    def cancel(self, state: int) -> None:
        """Give a reserved state back unused."""
        self._reserved.remove(state)
        self._pool.release(state)

    def commit(
        self, cache: RadixCache, tokens: array[int], position: int, state: int, kind: str, session: str, side: bool
    ) -> None:
        """Keep the reserved `state` as the checkpoint after `position` tokens, unless there is one already or the KV up
        to there is no longer cached; then the state is given back."""
        self._reserved.remove(state)
        try:
            node = cache.locate(tokens, position)
        except LookupError:
            self._pool.release(state)
            return
        made = next((c for c in usable(node) if c.position == position), None)
        if made is not None:
            self._pool.release(state)
            made.kind = max(kind, made.kind, key=WEIGHTS.__getitem__)
        else:
            exact = position % self.grid == 0
            made = Checkpoint(position, node, state, kind, session, side, self._pool.state_bytes, exact)
            node.checkpoints[position] = made
            self._kept[state] = made
            self._adopt_children(made)
            self._event("checkpoint-created", {"position": position, "kind": kind})
        self._touch_session(session)
        self._touch(made, session, side)
        head = self._heads.get(session)
        if made.kind == "head" and (head is None or head.position <= position or head.state not in self._kept):
            self._heads[session] = made

    def drop(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint and free its state."""
        del self._kept[checkpoint.state]
        checkpoint.node.checkpoints.pop(checkpoint.position, None)
        for other in self._kept.values():
            if other.parent is checkpoint:
                other.parent = checkpoint.parent
        for claims in (self._heads, self._tips):
            for session in [s for s, c in claims.items() if c is checkpoint]:
                del claims[session]
        self._pool.release(checkpoint.state)

    def protected(self, checkpoint: Checkpoint) -> bool:
        """True for the head checkpoint of a live session."""
        return any(self._heads.get(session) is checkpoint for session in self._live())

    def check(self) -> None:
        """Raises AssertionError when the cap or the bookkeeping is broken."""
        assert self.bytes <= self.cap_bytes
        for state, checkpoint in self._kept.items():
            assert checkpoint.state == state and checkpoint.node.checkpoints[checkpoint.position] is checkpoint
            assert checkpoint.parent is _before(checkpoint), "a checkpoint's parent is wrong"
        for claims in (self._heads, self._tips):
            assert all(self._kept.get(c.state) is c for c in claims.values())

    def _make_room(self, side: bool) -> bool:
        while self.bytes + self._pool.state_bytes > self.cap_bytes:
            victim = self._victim(side)
            if victim is None:
                return False
            self._event("checkpoint-evicted", {"position": victim.position, "kind": victim.kind})
            self.evictions += 1
            self.drop(victim)
        return True

    def _victim(self, side: bool) -> Checkpoint | None:
        live = self._live()
        heads = {id(self._heads[s]) for s in live if s in self._heads}
        tips = {id(self._tips[s]) for s in live if s in self._tips}
        candidates = [c for c in self._kept.values() if id(c) not in heads and (c.side or not side)]
        return min(candidates, key=lambda c: (id(c) in tips, self._worth(c), c.last_use), default=None)

    def _worth(self, checkpoint: Checkpoint) -> float:
        replay = checkpoint.position - (checkpoint.parent.position if checkpoint.parent else 0)
        unused = (self._uses - checkpoint.last_use) / max(1, self.cap)
        return float(replay * WEIGHTS[checkpoint.kind] / checkpoint.bytes * 0.5**unused)

    def _live(self) -> list[str]:
        """Sessions with claims: those seen lately, at most as many as half the cap, so that claims never fill it."""
        now = self._clock()
        lately = [session for session, seen in self._seen.items() if now - seen < LIVE_SESSION_S]
        return lately[-max(1, self.cap // 2) :]

    def _touch_session(self, session: str) -> None:
        self._seen.pop(session, None)
        self._seen[session] = self._clock()
        while len(self._seen) > 4096:
            stale = next(iter(self._seen))
            del self._seen[stale]
            self._heads.pop(stale, None)
            self._tips.pop(stale, None)

    def _touch(self, checkpoint: Checkpoint, session: str, side: bool) -> None:
        self._uses += 1
        checkpoint.last_use = self._uses
        checkpoint.side = checkpoint.side and side
        self._tips[session] = checkpoint

    def _adopt_children(self, made: Checkpoint) -> None:
        made.parent = _before(made)
        for other in self._kept.values():
            if other.parent is made.parent and other.position > made.position and _before(other) is made:
                other.parent = made


def _before(checkpoint: Checkpoint) -> Checkpoint | None:
    """The nearest checkpoint before this one on its line."""
    node: Node | None = checkpoint.node
    limit = checkpoint.position
    while node is not None:
        earlier = [c for c in usable(node) if c.position < limit]
        if earlier:
            return max(earlier, key=lambda c: c.position)
        node = node.parent
    return None
