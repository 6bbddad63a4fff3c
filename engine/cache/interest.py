"""What requests want of the checkpoints they come to: claims at their edit points, and the place each line has got to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.cache.claims import Claims, ahead_of, line_of
from engine.cache.eviction import Eviction
from engine.cache.lines import Lines
from engine.cache.node import Checkpoint
from engine.cache.radix import Match
from engine.protocol import EditPoint


class Interest:
    """`grid`: tokens between places where a state can be exact."""

    def __init__(self, claims: Claims, lines: Lines, eviction: Eviction, grid: int) -> None:
        self._claims = claims
        self._lines = lines
        self._eviction = eviction
        self._grid = grid

    def used(self, match: Match, session: str, side: bool, edit_points: Iterable[EditPoint], line: str = "") -> None:
        """A request resumes from `match`: refreshes that one checkpoint, and renews the claims of its line, which is
        `session`'s own unless `line` is given, on the checkpoints at its edit points."""
        line = line or line_of(session, "side" if side else "main")
        self._lines.touch(line)
        if not side:
            self._claims.forget(ahead_of(line))
        points: dict[int, list[EditPoint]] = {}
        for point in sorted(edit_points, key=lambda p: p.position):
            points.setdefault(point.position // self._grid * self._grid, []).append(point)
        for checkpoint in match.line:
            for point in points.get(checkpoint.position, ()):
                self._claims.add(checkpoint, line, point)
                checkpoint.side = checkpoint.side and side
        if match.checkpoint is not None:
            self._touch(match.checkpoint, line, side)
        for checkpoint in match.line:
            if checkpoint.kind == "head":
                checkpoint.side = checkpoint.side and side
                self._lines.set_head(checkpoint, line)

    def claim(
        self,
        made: Checkpoint,
        kind: str,
        session: str,
        side: bool,
        points: Sequence[EditPoint] = (),
        line: str = "",
        passing: bool = False,
    ) -> None:
        """`made` is what `line` has come to: it wants it because of `points`, or as a `kind` when there are none."""
        line = line or line_of(session, "side" if side else "main")
        self._lines.touch(line)
        if passing:
            made.last_use, made.side = self._eviction.uses, made.side and side
        else:
            self._touch(made, line, side)
        for point in points or [EditPoint(made.position, kind)]:
            self._claims.add(made, line, point)
        if made.kind == "head":
            self._lines.made_head(made, line)

    def _touch(self, checkpoint: Checkpoint, line: str, side: bool) -> None:
        checkpoint.passing = False
        self._eviction.uses += 1
        checkpoint.last_use = self._eviction.uses
        checkpoint.side = checkpoint.side and side
        self._lines.came_to(checkpoint, line)
