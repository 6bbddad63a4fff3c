"""Which checkpoint goes first.

What no live line wants goes before the rest (see `claims`), then it is replay cost that counts: tokens to the nearest surviving
checkpoint before it, times the weight of its class, halved for every `cap`-ful of uses of the store it sat through unused (else a
dead session with long gaps would hold the store for ever). Never evicted: what a person has pinned, the last head of a live line,
and a head that several sessions share. The newest checkpoint of a live line goes only when nothing else is left. A side request never evicts what a main
one wants.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from engine.cache.claims import UNWANTED, WEIGHTS, base
from engine.cache.lines import Lines
from engine.cache.node import Checkpoint

SIDE_SHARE = 3  # side and background work may hold 1/3 of the cap
MIN_SIDE = 2  # and this many are theirs alone, where the cap is not smaller than
ROOMY = 8


def share(side: bool, cap: int) -> int:
    """How many checkpoints are meant for side requests, or for main ones."""
    if side:
        return max(MIN_SIDE, cap // SIDE_SHARE)
    return cap - MIN_SIDE if cap >= ROOMY else cap


class Eviction:
    """`uses` counts those of the store, which is what ages a checkpoint."""

    def __init__(self, lines: Lines) -> None:
        self.uses = 0
        self._lines = lines

    def victim(
        self,
        kept: Collection[Checkpoint],
        cap: int,
        side: bool,
        own: bool,
        last: Checkpoint | None = None,
        passing: bool = False,
    ) -> Checkpoint | None:
        """What a request gives up for another; `own`: only from what is meant for requests like it. `last` is spared like the
        newest of a line. Before anything that is to stay goes what is passing, unless it is for what is `passing` too. None: all must stay."""
        live = set(self._lines.live(cap))
        safe, tips = self._lines.safe(kept, cap), self._lines.tips(live)

        def allowed(checkpoint: Checkpoint) -> bool:
            if checkpoint.pinned or id(checkpoint) in safe or (own and checkpoint.side != side):
                return False
            return not side or checkpoint.side or not (_wanted(checkpoint, live) or id(checkpoint) in tips)

        def order(checkpoint: Checkpoint) -> tuple[bool, tuple[bool, bool, float, int]]:
            stays = passing or not checkpoint.passing
            return stays, self._order(checkpoint, cap, live, checkpoint is last or id(checkpoint) in tips)

        return min((c for c in kept if allowed(c)), key=order, default=None)

    def order(self, kept: Collection[Checkpoint], cap: int) -> list[Checkpoint]:
        """In which order they go, whoever asks; at the end what is never evicted."""
        live = set(self._lines.live(cap))
        safe, tips = self._lines.safe(kept, cap), self._lines.tips(live)
        return sorted(kept, key=lambda c: (c.pinned or id(c) in safe, self._order(c, cap, live, id(c) in tips)))

    def less(self, checkpoint: Checkpoint, cap: int, worth: float) -> bool:
        """True when it may go for what is worth so much: it is not the newest of a live line, and no live line wants it or it is
        worth less."""
        live = set(self._lines.live(cap))
        if id(checkpoint) in self._lines.tips(live):
            return False
        return not _wanted(checkpoint, live) or self._worth(checkpoint, cap) < worth

    def _order(
        self, checkpoint: Checkpoint, cap: int, live: Container[str], tip: bool
    ) -> tuple[bool, bool, float, int]:
        return tip, _wanted(checkpoint, live), self._worth(checkpoint, cap), checkpoint.last_use

    def _worth(self, checkpoint: Checkpoint, cap: int) -> float:
        before = checkpoint.parent
        while before is not None and before.passing:
            before = before.parent
        replay = checkpoint.position - (before.position if before else 0)
        unused = (self.uses - checkpoint.last_use) / max(1, cap)
        weight = WEIGHTS[checkpoint.kind] if checkpoint.claims else UNWANTED
        return float(replay * weight / checkpoint.bytes * 0.5**unused)


def _wanted(checkpoint: Checkpoint, live: Container[str]) -> bool:
    return any(base(line) in live for line, _, _ in checkpoint.claims)
