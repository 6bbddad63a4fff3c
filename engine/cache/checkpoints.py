"""Which saved recurrent states are kept under a hard byte cap, and for whom. A checkpoint whose KV page is evicted is dropped at once;
which others go is `eviction`'s business.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence

from engine.cache.claims import WEIGHTS, Claims
from engine.cache.eviction import Eviction, share
from engine.cache.interest import Interest
from engine.cache.kept import Kept, at
from engine.cache.lines import Lines
from engine.cache.node import Checkpoint, Claim
from engine.cache.radix import Match, RadixCache
from engine.cache.reserved import Reserved
from engine.memory.pools import StatePool
from engine.protocol import EditPoint


class CheckpointStore:
    """Owns the state ids it hands out; `used` and `claim` are those of `Interest`. `event(kind, fields)` is told of every creation and eviction."""

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
        self.given_up: Callable[[Checkpoint], None] = lambda checkpoint: None  # told of each, while it is still there
        self._pool = pool
        self._event = event
        self._clock = clock
        self._reserved = Reserved(pool)
        self._kept = Kept()
        self._claims = Claims()
        self._lines = Lines(lambda: self._clock(), self._claims.forget)
        self._eviction = Eviction(self._lines)
        interest = Interest(self._claims, self._lines, self._eviction, grid)
        self.used, self.claim = interest.used, interest.claim

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
        """What is kept, for reports, see `Kept.listing`."""
        return self._kept.listing()

    def reserve(self, side: bool, last: Checkpoint | None = None) -> int | None:
        """A state to snapshot into, evicting when the cap is reached; None when nothing may be evicted. The caller must
        `commit` or `cancel` it. `last` is spared like the newest of a line."""
        return self._reserved.new(side) if self._make_room(side, last=last) else None

    def reserve_passing(self, side: bool, replay: int, kind: str) -> int | None:
        """As `reserve`, for a `kind` that saves `replay` tokens if it is ever needed: for it goes only what no live line wants,
        or what is worth less and is not the newest of its line."""
        worth = replay * WEIGHTS[kind] / self._pool.state_bytes
        return self._reserved.new(side) if self._make_room(side, worth) else None

    def at(self, cache: RadixCache, tokens: array[int], position: int) -> Checkpoint | None:
        """What is kept after `position` of `tokens`; None also when the KV up to there is not cached."""
        try:
            node = cache.locate(tokens, position)
        except LookupError:
            return None
        return at(node, position)

    def adopt(self, state: int, side: bool) -> bool:
        """Take over a live state as a reserved one, without a copy. False when the cap leaves no room."""
        if not self._make_room(side):
            return False
        self._reserved.adopt(state, side)
        return True

    def holds(self, checkpoint: Checkpoint) -> bool:
        """True while it is kept."""
        return self._kept.holds(checkpoint)

    def take_back(self, checkpoint: Checkpoint, claim: Claim) -> int | None:
        """The checkpoint's state, reserved again; None, and the checkpoint stays, when others than `claim`'s line want it or
        came to it, or a person has pinned it."""
        if checkpoint.pinned or not checkpoint.claims <= {claim} or self._lines.held_by_others(checkpoint, claim[0]):
            return None
        self._forget(checkpoint)
        self._reserved.adopt(checkpoint.state, checkpoint.side)
        return checkpoint.state

    def cancel(self, state: int) -> None:
        """Give a reserved state back unused."""
        self._reserved.give_back(state)

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
        passing: bool = False,
    ) -> Checkpoint | None:
        """Keep the reserved `state` as the checkpoint after `position` tokens, unless there is one already; claimed by
        `points`, or for `kind` when there are none. None, and the state given back, when the KV up to there is no longer
        cached. `passing`: soon replaced, so it is not told of, and the line still goes on from what it came to before."""
        try:
            node = cache.locate(tokens, position)
        except LookupError:
            self._reserved.give_back(state)
            return None
        made = at(node, position)
        if made is not None:
            self._reserved.give_back(state)
        else:
            self._reserved.taken(state)
            exact = position % self.grid == 0
            made = Checkpoint(position, node, state, kind, session, side, self._pool.state_bytes, exact)
            made.passing = passing
            self._kept.put(made)
            if not passing:
                self._event("checkpoint-created", {"position": position, "class": kind})
        self.claim(made, kind, session, side, points, line, passing)
        return made

    def resize(self, cap_bytes: int) -> bool:
        """Keep at most so much from now on; what is over goes in the usual order. False when what must stay is more: the cap is
        that for now."""
        self.cap_bytes = cap_bytes
        while self.bytes > cap_bytes and (victim := self._victim()) is not None:
            self._evict(victim)
        self.cap_bytes = max(cap_bytes, self.bytes)
        return self.cap_bytes == cap_bytes

    def evict(self) -> bool:
        """Give one up for another use of its memory; False when all must stay."""
        victim = self._victim()
        if victim is not None:
            self._evict(victim)
        return victim is not None

    def order(self, cap: int) -> list[Checkpoint]:
        """In which order they would go if `cap` were the most there may be."""
        return self._eviction.order(self._kept.values(), cap)

    def moved(self, states: Mapping[int, int]) -> None:
        """These states have other ids now: old id -> new one. No id is both."""
        for old, new in states.items():
            if old in self._kept:
                self._kept.moved(old, new)
            elif old in self._reserved:
                self._reserved.moved(old, new)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint and free its state."""
        self._forget(checkpoint)
        self._pool.release(checkpoint.state)

    def kept(self) -> list[Checkpoint]:
        """All of them."""
        return list(self._kept.values())

    def give_up(self, checkpoint: Checkpoint) -> None:
        """As if it were evicted, whoever wants it."""
        self._evict(checkpoint)

    def worth_saving(self, match: Match) -> list[Checkpoint]:
        """The checkpoints on `match` that their lines want, and the deepest one."""
        wanted = [c for c in match.line if c.claims]
        return wanted if not match.line or match.line[-1] in wanted else [*wanted, match.line[-1]]

    def protected(self, checkpoint: Checkpoint) -> bool:
        """True for the head of a live line, for a head that several sessions share, and for what a person has pinned."""
        if checkpoint.pinned:
            return True
        return checkpoint.kind == "head" and id(checkpoint) in self._lines.safe(self._kept.values(), self.cap)

    def check(self) -> None:
        """Raises AssertionError when the cap or the bookkeeping is broken."""
        assert self.bytes <= self.cap_bytes
        self._kept.check()
        self._lines.check(self._kept.holds)
        self._claims.check(self._kept.values())

    def _make_room(self, side: bool, worth: float | None = None, last: Checkpoint | None = None) -> bool:
        """False when nothing may go for what is worth so much; None: more than all that may go at all."""
        while (
            full := self._held(side) >= share(side, self.cap)
        ) or self.bytes + self._pool.state_bytes > self.cap_bytes:
            victim = self._victim(side, full, last, worth is not None)
            if victim is None or (worth is not None and not self._eviction.less(victim, self.cap, worth)):
                return False
            self._evict(victim)
        return True

    def _victim(
        self, side: bool = False, own: bool = False, last: Checkpoint | None = None, passing: bool = False
    ) -> Checkpoint | None:
        return self._eviction.victim(self._kept.values(), self.cap, side, own, last, passing)

    def _held(self, side: bool) -> int:
        """By side, or by main requests."""
        return sum(c.side == side for c in self._kept.values()) + self._reserved.count(side)

    def _forget(self, checkpoint: Checkpoint) -> None:
        """It is not to be found any more; its state is still taken."""
        self._kept.take(checkpoint)
        self._claims.drop(checkpoint)
        self._lines.drop(checkpoint)

    def _evict(self, victim: Checkpoint) -> None:
        self._event("checkpoint-evicted", {"position": victim.position, "class": victim.kind})
        self.evictions += 1
        self.given_up(victim)
        self.drop(victim)
