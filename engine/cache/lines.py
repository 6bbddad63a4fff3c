"""What each line holds on to: its head, the checkpoint it came to last, and whether it is still alive."""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.cache.claims import base, line_of
from engine.cache.node import Checkpoint

LIVE_SESSION_S = 3600.0
REMEMBERED = 4096


class Lines:
    """`forgotten` is told of a line that nobody has used for so long that others have taken its place."""

    def __init__(self, clock: Callable[[], float], forgotten: Callable[[str], None]) -> None:
        self._clock = clock
        self._forgotten = forgotten
        self._heads: dict[str, Checkpoint] = {}  # line -> its deepest head checkpoint
        self._tips: dict[str, Checkpoint] = {}  # line -> the checkpoint it made or used last
        self._seen: dict[str, float] = {}  # main line -> when it last used the store, least recent first

    def touch(self, line: str) -> None:
        """`line` uses the store."""
        main = base(line)
        self._seen.pop(main, None)
        self._seen[main] = self._clock()
        while len(self._seen) > REMEMBERED:
            stale = next(iter(self._seen))
            del self._seen[stale]
            for each in (line_of(stale, "main"), line_of(stale, "side"), line_of(stale, "background")):
                self._heads.pop(each, None)
                self._tips.pop(each, None)
                self._forgotten(each)

    def came_to(self, checkpoint: Checkpoint, line: str) -> None:
        """`line` made or used `checkpoint` last."""
        self._tips[line] = checkpoint

    def made_head(self, checkpoint: Checkpoint, line: str) -> None:
        """`checkpoint` is a head; it becomes that of `line` unless that has a deeper one."""
        head = self._heads.get(line)
        if head is None or head.position <= checkpoint.position:
            self.set_head(checkpoint, line)

    def set_head(self, checkpoint: Checkpoint, line: str) -> None:
        """`checkpoint` is the head of `line`."""
        self._heads[line] = checkpoint
        if line == base(line):
            checkpoint.sessions[line.partition("/")[0]] = self._clock()

    def drop(self, checkpoint: Checkpoint) -> None:
        """It is gone."""
        for held in (self._heads, self._tips):
            for line in [s for s, c in held.items() if c is checkpoint]:
                del held[line]

    def live(self, cap: int) -> list[str]:
        """Main lines with claims: those seen lately, at most as many as half the cap, so that claims never fill it."""
        now = self._clock()
        lately = [line for line, seen in self._seen.items() if now - seen < LIVE_SESSION_S]
        return lately[-max(1, cap // 2) :]

    def safe(self, kept: Collection[Checkpoint], cap: int) -> set[int]:
        """Ids of what is never evicted: heads of live lines, and the latest heads that several sessions use."""
        live = set(self.live(cap))
        now = self._clock()
        shared = [
            (max(c.sessions.values()), id(c))
            for c in kept
            if len(c.sessions) > 1 and now - max(c.sessions.values()) < LIVE_SESSION_S
        ]
        return {id(c) for line, c in self._heads.items() if line in live} | {
            i for _, i in sorted(shared)[-max(1, cap // 4) :]
        }

    def tips(self, live: Collection[str]) -> set[int]:
        """Ids of the checkpoints that live lines came to last."""
        return {id(c) for line, c in self._tips.items() if base(line) in live}

    def held_by_others(self, checkpoint: Checkpoint, line: str) -> bool:
        """True when another line than `line` came to it last, or any has it as its head."""
        others = [c for name, c in self._tips.items() if name != line]
        return any(c is checkpoint for c in [*others, *self._heads.values()])

    def check(self, holds: Callable[[Checkpoint], bool]) -> None:
        """Raises AssertionError when a line holds on to what is gone."""
        for held in (self._heads, self._tips):
            assert all(map(holds, held.values()))
