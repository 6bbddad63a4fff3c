"""When prefixes go to disk and come back.

A line that has been idle for a while is written piece by piece while nothing real runs: its KV, and the few states that
its next turn needs most. On shutdown the rest that its claims want is written within the drain time, the most recent line
first. A request whose prompt
can go on from deeper on disk than in memory has that read in first, one piece for each step of the others.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from engine.cache.hibernate import Disk
from engine.cache.segment import Segment
from engine.scheduler.request import Request
from engine.scheduler.residency import Residency
from engine.scheduler.restore import Restore
from engine.scheduler.step import Runner

log = logging.getLogger(__name__)

IDLE_S = 3.0
POLL_S = 0.05  # how soon to look again while a piece is being written
PAUSE_S = 60.0  # after a failed write
MIN_TOKENS = 64
PIECE_TOKENS = 1024  # about a few MB: what one step of others waits for
STATES = 8  # newest states of a line that are worth their bytes when the engine stops, besides its first
STATES_IDLE = 2  # and in between, where the next turn makes most of them stale
LINES = 64  # so many are remembered for the stop


@dataclass(slots=True)
class Line:
    """The newest tokens of a line that were computed, since when nobody has used them, of which session they are, and whether
    they were saved."""

    tokens: array[int]
    since: float
    session: str = ""
    saved: bool = False


class Hibernation:
    """Called from the scheduling loop; files are written by a thread of its own."""

    def __init__(
        self,
        disk: Disk,
        residency: Residency,
        runner: Runner,
        idle_s: float = IDLE_S,
        min_tokens: int = MIN_TOKENS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.disk = disk
        self.written_tokens = 0
        self._residency = residency
        self._runner = runner
        self._idle_s = idle_s
        self._min_tokens = min_tokens
        self._clock = clock
        self._lines: dict[str, Line] = {}  # least recent first
        self._restores: dict[int, Restore] = {}  # by seq of a waiting request
        self._thread = ThreadPoolExecutor(1, "hibernate")
        self._writing: tuple[str, Future[bool]] | None = None  # which line, and whether its piece found room
        self._not_before = 0.0

    def leaves(self, request: Request) -> None:
        """`request` is leaving, with its tokens up to `computed` in the cache. What was coming for it comes no more."""
        job = self._restores.pop(request.seq, None)
        if job is not None:
            job.close()
        if request.computed < self._min_tokens or (request.side and not request.ahead):
            return
        line = request.line if request.submit.session else f"{request.line}{request.history[: self._min_tokens]}"
        self._lines.pop(line, None)
        self._lines[line] = Line(request.tokens[: request.computed], self._clock(), request.session)
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]

    # From disk

    @property
    def restoring(self) -> bool:
        return bool(self._restores)

    def brings(self, request: Request) -> bool:
        """True while what disk has of `request` beyond what memory has is read in; the first time, that begins."""
        if not request.looked_up:
            request.looked_up = True
            found = self._look_up(request)
            if found is not None:
                self._restores[request.seq] = found
        return request.seq in self._restores

    def advance(self, alone: bool) -> None:
        """Read one file for each request that waits for some; for background work only when that is `alone`."""
        for seq, job in list(self._restores.items()):
            if (alone or not job.request.ahead) and not job.advance():
                self._restores.pop(seq).close()

    def give_up(self) -> bool:
        """Free the pages of what is being read in, the youngest first; False when there is nothing."""
        if not self._restores:
            return False
        self._restores.popitem()[1].close()
        return True

    # To disk

    def due_s(self) -> float | None:
        """Seconds until `tick` has something to do; None when nothing is to be written."""
        dirty = [line.since for line in self._lines.values() if not line.saved]
        if not dirty:
            return None
        if self._writing is not None and not self._writing[1].done():
            return POLL_S
        return max(0.0, max(min(dirty) + self._idle_s, self._not_before) - self._clock())

    def tick(self) -> None:
        """Copy one piece of an idle line out and have it written; returns without waiting for that."""
        if self.due_s() != 0.0 or not self._collect():
            return
        now = self._clock()
        for name, line in self._lines.items():
            if line.saved or now - line.since < self._idle_s:
                continue
            piece = self._next_piece(line, STATES_IDLE)
            if piece is not None:
                self._writing = name, self._thread.submit(piece)
                return
            line.saved = True

    def flush(self, deadline: float) -> None:
        """Write what is dirty, the most recent line first, until it is done or `deadline` on the clock."""
        if self._writing is not None:
            wait([self._writing[1]], max(0.0, deadline - self._clock()))
        for name in reversed(list(self._lines)):
            line, room = self._lines.pop(name), True
            while room and self._clock() < deadline and (piece := self._next_piece(line, STATES)) is not None:
                try:
                    room = piece()
                except OSError as failure:
                    log.warning("a prefix could not be written to disk: %s", failure)
                    return

    def forget(self, session: str) -> None:
        """Nothing more of a session goes to disk, and what only it has there is removed."""
        for name in [name for name, line in self._lines.items() if line.session == session]:
            del self._lines[name]
        if self._writing is not None:
            wait([self._writing[1]])  # it may be of this session
        self.disk.forget(session)

    def report(self) -> dict[str, int]:
        """For `stats`."""
        disk = self.disk
        return {
            "files": len(disk),
            "bytes": disk.size_bytes,
            "budget_bytes": disk.budget_bytes,
            "damaged": disk.damaged,
            "written_tokens": self.written_tokens,
            "dirty_lines": sum(not line.saved for line in self._lines.values()),
        }

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, request: Request) -> Restore | None:
        residency = self._residency
        limit = len(request.tokens) - (0 if request.ahead else 1)
        found = self.disk.find(request.tokens[:limit], residency.cache.hybrid)
        if found is None or found.position <= residency.match(request).resume_at:
            return None
        return Restore(found, self.disk, residency, self._runner, request)

    def _collect(self) -> bool:
        """True when the last write is over; after a failed one, nothing is written for a while."""
        if self._writing is None:
            return True
        (name, future), self._writing = self._writing, None
        failure = future.exception()
        if failure is not None:
            log.warning("a prefix could not be written to disk: %s", failure)
            self._not_before = self._clock() + PAUSE_S
        elif not future.result():
            self._lines.pop(name, None)  # the budget is too small for it
        return failure is None

    def _next_piece(self, line: Line, newest: int) -> Callable[[], bool] | None:
        """Copies the first thing of a line out that is not on disk; returns what writes it. None: all is there."""
        cache, store, tokens = self._residency.cache, self._residency.store, line.tokens
        match = cache.match(tokens + tokens[-1:])
        targets = [match.resume_at]
        states = {}
        if store is not None:
            wanted = store.worth_saving(match)
            wanted = wanted[:1] + wanted[1:][-newest:]
            targets = [c.position for c in wanted]
            states = {c.position: c.state for c in wanted}
        for target in targets:
            done, parent = self.disk.deepest(tokens, target)
            if done < target:
                end = min(target, (done // PIECE_TOKENS + 1) * PIECE_TOKENS)
                return self._segment(line, done, end, parent, match.pages)
            if target in states and not self.disk.has_state(tokens, target):
                state = self._runner.read_state(states[target])
                return partial(self.disk.keep_state, tokens[:target], state, line.session)
        return None

    def _segment(self, line: Line, start: int, end: int, parent: str, pages: list[int]) -> Callable[[], bool]:
        size, tokens = self._residency.pools.page_tokens, line.tokens
        data = tuple(
            self._runner.read_page(pages[i], min(size, end - i * size)) for i in range(start // size, -(-end // size))
        )

        self.written_tokens += end - start
        segment = Segment(start, tokens[start:end], data)
        return partial(self.disk.keep_segment, tokens[:end], parent, segment, line.session)
