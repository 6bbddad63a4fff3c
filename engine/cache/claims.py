"""Which lines want which checkpoints, and how many of a kind each line may want.

A line is a conversation that grows. Every declared edge of it is a claim (line, kind, edge); the newest `quota` checkpoints
of a claim are wanted by it, older ones are not. A checkpoint that nobody wants any more has lost its class.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.cache.node import Checkpoint, Claim
from engine.protocol import EditPoint

WEIGHTS = {"head": 16.0, "turn": 8.0, "frontier": 6.0, "reminder": 6.0, "live": 4.0, "prompt": 2.0, "decode": 1.0}
UNWANTED = 0.25  # weight of a checkpoint without a claim
QUOTAS = {"head": 4, "turn": 4, "frontier": 3, "reminder": 2, "live": 3, "prompt": 3, "decode": 2}  # a point's quota 0

_SIDE, _AHEAD = "\0side", "\0ahead"


def line_of(session: str, priority: str) -> str:
    """The line of a request. Side and background requests of a session have lines of their own, so that they push
    nothing of the main one over its quota."""
    return session + {"side": _SIDE, "background": _AHEAD}.get(priority, "")


def ahead_of(line: str) -> str:
    """The line of the background work for `line`."""
    return base(line) + _AHEAD


def base(line: str) -> str:
    """The main line that a line belongs to."""
    return line.partition("\0")[0]


def within_quota(points: Iterable[EditPoint]) -> list[EditPoint]:
    """The deepest `quota` points of each (kind, edge), by position."""
    left: dict[tuple[str, str], int] = {}
    kept = []
    for point in sorted(points, key=lambda p: p.position, reverse=True):
        key = point.kind, point.edge
        left.setdefault(key, point.quota or QUOTAS[point.kind])
        left[key] -= 1
        if left[key] >= 0:
            kept.append(point)
    return kept[::-1]


class Claims:
    """Sets the `claims` and `kind` of checkpoints."""

    def __init__(self) -> None:
        self._wanted: dict[Claim, list[Checkpoint]] = {}  # newest last
        self._of_line: dict[str, set[Claim]] = {}

    def add(self, checkpoint: Checkpoint, line: str, point: EditPoint) -> None:
        """`line` wants `checkpoint` because of `point`; it is now the newest of its claim."""
        claim = line, point.kind, point.edge
        wanted = self._wanted.setdefault(claim, [])
        self._of_line.setdefault(line, set()).add(claim)
        if checkpoint in wanted:
            wanted.remove(checkpoint)
        wanted.append(checkpoint)
        checkpoint.claims.add(claim)
        _classify(checkpoint)
        while len(wanted) > (point.quota or QUOTAS[point.kind]):
            self._release(wanted.pop(0), claim)

    def drop(self, checkpoint: Checkpoint) -> None:
        """The checkpoint is gone."""
        for claim in checkpoint.claims:
            self._wanted[claim].remove(checkpoint)
        checkpoint.claims.clear()

    def forget(self, line: str) -> None:
        """The line wants nothing any more."""
        for claim in self._of_line.pop(line, ()):
            for checkpoint in self._wanted.pop(claim):
                self._release(checkpoint, claim)

    def check(self, kept: Iterable[Checkpoint]) -> None:
        """Raises AssertionError when checkpoints and claims disagree."""
        for checkpoint in kept:
            assert all(checkpoint in self._wanted[claim] for claim in checkpoint.claims)
        listed = {id(c) for wanted in self._wanted.values() for c in wanted}
        assert listed <= {id(c) for c in kept}, "a claim on a checkpoint that is gone"

    def _release(self, checkpoint: Checkpoint, claim: Claim) -> None:
        checkpoint.claims.discard(claim)
        _classify(checkpoint)


def _classify(checkpoint: Checkpoint) -> None:
    checkpoint.kind = max((kind for _, kind, _ in checkpoint.claims), key=WEIGHTS.__getitem__, default="decode")
