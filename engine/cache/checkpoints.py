"""Which saved recurrent states are kept under a hard byte cap.

Eviction takes what no live line wants first (see `claims`), then goes by replay cost: tokens to the nearest surviving
checkpoint before it, times the weight of its class, halved for every `cap`-ful of uses of the store it sat through unused
(else a dead session with long gaps would hold the store for ever). Never evicted: the last head of a live line, and a head
that several sessions share. The newest checkpoint of a live line goes only when nothing else is left. A side request never
evicts what a main one wants. A checkpoint whose KV page is evicted is dropped at once.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.cache.claims import UNWANTED, WEIGHTS, Claims, ahead_of, base, line_of
from engine.cache.node import Checkpoint, Node, usable
from engine.cache.radix import Match, RadixCache
from engine.memory.pools import StatePool
from engine.protocol import EditPoint

LIVE_SESSION_S = 3600.0
SIDE_SHARE = 3  # side and background work may hold 1/3 of the cap
MIN_SIDE = 2  # and this many are theirs alone, where the cap is not smaller than
ROOMY = 8


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
        self._reserved: dict[int, bool] = {}  # state id -> for a side request
        self._kept: dict[int, Checkpoint] = {}  # by state id
        self._claims = Claims()
        self._heads: dict[str, Checkpoint] = {}  # line -> its deepest head checkpoint
        self._tips: dict[str, Checkpoint] = {}  # line -> the checkpoint it made or used last
        self._seen: dict[str, float] = {}  # main line -> when it last used the store, least recent first

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

    def listing(self) -> list[dict[str, object]]:
        """What is kept, for reports: position, kind, the edges it is kept for, and the line that made it."""
        return [
            {
                "line": base(c.session),
                "position": c.position,
                "kind": c.kind,
                "edge": ", ".join(sorted({edge for _, _, edge in c.claims if edge})),
                "tier": "ram",
                "bytes": c.bytes,
                "wanted": bool(c.claims),
            }
            for c in self._kept.values()
        ]

    def used(self, match: Match, session: str, side: bool, edit_points: Iterable[EditPoint], line: str = "") -> None:
        """A request resumes from `match`: refreshes that one checkpoint, and renews the claims of its line, which is
        `session`'s own unless `line` is given, on the checkpoints at its edit points."""
        line = line or line_of(session, "side" if side else "main")
        self._touch_line(line)
        if not side:
            self._claims.forget(ahead_of(line))
        points: dict[int, list[EditPoint]] = {}
        for point in sorted(edit_points, key=lambda p: p.position):
            points.setdefault(point.position // self.grid * self.grid, []).append(point)
        for checkpoint in match.line:
            for point in points.get(checkpoint.position, ()):
                self._claims.add(checkpoint, line, point)
                checkpoint.side = checkpoint.side and side
        if match.checkpoint is not None:
            self._touch(match.checkpoint, line, side)
        for checkpoint in match.line:
            if checkpoint.kind == "head":
                checkpoint.side = checkpoint.side and side
                self._set_head(checkpoint, line)

    def reserve(self, side: bool) -> int | None:
        """A state to snapshot into, evicting when the cap is reached; None when nothing may be evicted. The caller must
        `commit` or `cancel` it."""
        if not self._make_room(side) or not self._pool.free:
            return None
        state = self._pool.alloc()
        self._reserved[state] = side
        return state

    def at(self, cache: RadixCache, tokens: array[int], position: int) -> Checkpoint | None:
        """What is kept after `position` of `tokens`; None also when the KV up to there is not cached."""
        try:
            node = cache.locate(tokens, position)
        except LookupError:
            return None
        return _at(node, position)

    def adopt(self, state: int, side: bool) -> bool:
        """Take over a live state as a reserved one, without a copy. False when the cap leaves no room."""
        if not self._make_room(side):
            return False
        self._reserved[state] = side
        return True

    def cancel(self, state: int) -> None:
        """Give a reserved state back unused."""
        del self._reserved[state]
        self._pool.release(state)

    def commit(
        self,
        cache: RadixCache,
        tokens: array[int],
        position: int,
        state: int,
        kind: str,
        session: str,
        side: bool,
        points: Sequence[EditPoint] = (),
        line: str = "",
    ) -> Checkpoint | None:
        """Keep the reserved `state` as the checkpoint after `position` tokens, unless there is one already; claimed by
        `points`, or for `kind` when there are none. None, and the state given back, when the KV up to there is no longer
        cached."""
        del self._reserved[state]
        try:
            node = cache.locate(tokens, position)
        except LookupError:
            self._pool.release(state)
            return None
        made = _at(node, position)
        if made is not None:
            self._pool.release(state)
        else:
            exact = position % self.grid == 0
            made = Checkpoint(position, node, state, kind, session, side, self._pool.state_bytes, exact)
            node.checkpoints[position] = made
            self._kept[state] = made
            self._adopt_children(made)
            self._event("checkpoint-created", {"position": position, "kind": kind})
        self.claim(made, kind, session, side, points, line)
        return made

    def claim(
        self,
        made: Checkpoint,
        kind: str,
        session: str,
        side: bool,
        points: Sequence[EditPoint] = (),
        line: str = "",
    ) -> None:
        """`made` is what `line` has come to: it wants it because of `points`, or as a `kind` when there are none."""
        line = line or line_of(session, "side" if side else "main")
        self._touch_line(line)
        self._touch(made, line, side)
        for point in points or [EditPoint(made.position, kind)]:
            self._claims.add(made, line, point)
        head = self._heads.get(line)
        if made.kind == "head" and (head is None or head.position <= made.position or head.state not in self._kept):
            self._set_head(made, line)

    def resize(self, cap_bytes: int) -> bool:
        """Keep at most so much from now on; what is over goes in the usual order. False when what must stay is more: the cap is
        that for now."""
        self.cap_bytes = cap_bytes
        while self.bytes > cap_bytes and (victim := self._victim(side=False, own=False)) is not None:
            self._evict(victim)
        self.cap_bytes = max(cap_bytes, self.bytes)
        return self.cap_bytes == cap_bytes

    def evict(self) -> bool:
        """Give one up for another use of its memory; False when all must stay."""
        victim = self._victim(side=False, own=False)
        if victim is not None:
            self._evict(victim)
        return victim is not None

    def moved(self, states: Mapping[int, int]) -> None:
        """These states have other ids now: old id -> new one. No id is both."""
        for old, new in states.items():
            if old in self._kept:
                checkpoint = self._kept[new] = self._kept.pop(old)
                checkpoint.state = new
            elif old in self._reserved:
                self._reserved[new] = self._reserved.pop(old)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint and free its state."""
        del self._kept[checkpoint.state]
        checkpoint.node.checkpoints.pop(checkpoint.position, None)
        self._claims.drop(checkpoint)
        for other in self._kept.values():
            if other.parent is checkpoint:
                other.parent = checkpoint.parent
        for claims in (self._heads, self._tips):
            for line in [s for s, c in claims.items() if c is checkpoint]:
                del claims[line]
        self._pool.release(checkpoint.state)

    def worth_saving(self, match: Match) -> list[Checkpoint]:
        """The checkpoints on `match` that their lines want, and the deepest one."""
        wanted = [c for c in match.line if c.claims]
        return wanted if not match.line or match.line[-1] in wanted else [*wanted, match.line[-1]]

    def protected(self, checkpoint: Checkpoint) -> bool:
        """True for the head of a live line and for a head that several sessions share."""
        return checkpoint.kind == "head" and id(checkpoint) in self._safe(set(self._live()))

    def check(self) -> None:
        """Raises AssertionError when the cap or the bookkeeping is broken."""
        assert self.bytes <= self.cap_bytes
        for state, checkpoint in self._kept.items():
            assert checkpoint.state == state and checkpoint.node.checkpoints[checkpoint.position] is checkpoint
            assert checkpoint.parent is _before(checkpoint), "a checkpoint's parent is wrong"
        for claims in (self._heads, self._tips):
            assert all(self._kept.get(c.state) is c for c in claims.values())
        self._claims.check(self._kept.values())

    def _make_room(self, side: bool) -> bool:
        while (full := self._is_full(side)) or self.bytes + self._pool.state_bytes > self.cap_bytes:
            victim = self._victim(side, full)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def _evict(self, victim: Checkpoint) -> None:
        self._event("checkpoint-evicted", {"position": victim.position, "kind": victim.kind})
        self.evictions += 1
        self.drop(victim)

    def _is_full(self, side: bool) -> bool:
        """True when side or main requests hold all that is meant for them."""
        held = sum(c.side == side for c in self._kept.values()) + sum(s == side for s in self._reserved.values())
        if side:
            return held >= max(MIN_SIDE, self.cap // SIDE_SHARE)
        return held >= (self.cap - MIN_SIDE if self.cap >= ROOMY else self.cap)

    def _victim(self, side: bool, own: bool) -> Checkpoint | None:
        """What a request gives up for another; `own`: only from what is meant for requests like it."""
        live = set(self._live())
        safe = self._safe(live)
        tips = {id(c) for line, c in self._tips.items() if base(line) in live}

        def wanted(checkpoint: Checkpoint) -> bool:
            return any(base(line) in live for line, _, _ in checkpoint.claims)

        def allowed(checkpoint: Checkpoint) -> bool:
            if id(checkpoint) in safe or (own and checkpoint.side != side):
                return False
            return not side or checkpoint.side or not (wanted(checkpoint) or id(checkpoint) in tips)

        candidates = [c for c in self._kept.values() if allowed(c)]
        return min(candidates, key=lambda c: (id(c) in tips, wanted(c), self._worth(c), c.last_use), default=None)

    def _worth(self, checkpoint: Checkpoint) -> float:
        replay = checkpoint.position - (checkpoint.parent.position if checkpoint.parent else 0)
        unused = (self._uses - checkpoint.last_use) / max(1, self.cap)
        weight = WEIGHTS[checkpoint.kind] if checkpoint.claims else UNWANTED
        return float(replay * weight / checkpoint.bytes * 0.5**unused)

    def _safe(self, live: set[str]) -> set[int]:
        """Ids of what is never evicted: heads of live lines, and the latest heads that several sessions use."""
        safe = {id(c) for line, c in self._heads.items() if line in live}
        now = self._clock()
        shared = [
            (max(c.sessions.values()), id(c))
            for c in {id(c): c for c in self._kept.values() if len(c.sessions) > 1}.values()
            if now - max(c.sessions.values()) < LIVE_SESSION_S
        ]
        return safe | {i for _, i in sorted(shared)[-max(1, self.cap // 4) :]}

    def _live(self) -> list[str]:
        """Main lines with claims: those seen lately, at most as many as half the cap, so that claims never fill it."""
        now = self._clock()
        lately = [line for line, seen in self._seen.items() if now - seen < LIVE_SESSION_S]
        return lately[-max(1, self.cap // 2) :]

    def _set_head(self, checkpoint: Checkpoint, line: str) -> None:
        self._heads[line] = checkpoint
        if line == base(line):
            checkpoint.sessions[line.partition("/")[0]] = self._clock()

    def _touch_line(self, line: str) -> None:
        main = base(line)
        self._seen.pop(main, None)
        self._seen[main] = self._clock()
        while len(self._seen) > 4096:
            stale = next(iter(self._seen))
            del self._seen[stale]
            for each in (line_of(stale, "main"), line_of(stale, "side"), line_of(stale, "background")):
                self._heads.pop(each, None)
                self._tips.pop(each, None)
                self._claims.forget(each)

    def _touch(self, checkpoint: Checkpoint, line: str, side: bool) -> None:
        self._uses += 1
        checkpoint.last_use = self._uses
        checkpoint.side = checkpoint.side and side
        self._tips[line] = checkpoint

    def _adopt_children(self, made: Checkpoint) -> None:
        made.parent = _before(made)
        for other in self._kept.values():
            if other.parent is made.parent and other.position > made.position and _before(other) is made:
                other.parent = made


def _at(node: Node, position: int) -> Checkpoint | None:
    return next((c for c in usable(node) if c.position == position), None)


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
