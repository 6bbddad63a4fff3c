"""A prefix on its way from disk into the cache."""

from __future__ import annotations

from array import array

from engine.cache.checkpoints import CheckpointStore
from engine.cache.hibernate import Disk, Found
from engine.cache.segment import Segment
from engine.memory.arena import ArenaFull
from engine.protocol import EditPoint
from engine.scheduler.request import Request
from engine.scheduler.residency import Residency
from engine.scheduler.step import Runner


class Restore:
    """Brings one prompt's prefix in from disk, a file for each `advance`. Holds the pages it filled until `close`."""

    def __init__(self, found: Found, disk: Disk, residency: Residency, runner: Runner, request: Request) -> None:
        self.tokens = 0  # brought in
        self._found = found
        self._disk = disk
        self._residency = residency
        self._runner = runner
        self.request = request
        self._left = list(found.chain)
        self._position = 0
        self.pages: list[int] = []
        self.state = -1
        cache, pool = residency.cache, residency.pools.pages
        for node in cache.path(request.tokens, found.position):
            if node.end > found.position or node.end % cache.page_tokens:
                break
            pool.retain(node.page)
            self.pages.append(node.page)
        self._held = len(self.pages)  # full pages that were in memory already
        residency.holders.append(self)

    def advance(self) -> bool:
        """Read one file. False when there is nothing more to do: what came in is in the cache, ready for `close`."""
        size = self._residency.pools.page_tokens
        while self._left and self._left[0].end <= self._held * size:
            self._position = self._left.pop(0).end
        if not self._left:
            self._finish()
            return False
        name = self._left.pop(0)
        segment = self._disk.segment(name)
        end = min(name.end, self._found.position)
        fits = segment is not None and segment.tokens[: end - name.start] == self.request.tokens[name.start : end]
        if segment is None or not fits or not self._fill(segment, end):
            self._left.clear()
        return True

    def close(self) -> None:
        """Give up the hold on the pages. What came in stays cached."""
        for page in self.pages:
            self._residency.pools.pages.release(page)
        self.pages, self._left = [], []
        if self in self._residency.holders:
            self._residency.holders.remove(self)

    def _fill(self, segment: Segment, end: int) -> bool:
        """Write a segment's pages up to `end`; False when memory has no room."""
        residency = self._residency
        size = residency.pools.page_tokens
        try:
            self.pages += residency.take(-(-end // size) - len(self.pages), self.request.ahead)
        except ArenaFull:
            return False
        first = segment.start // size
        for i, data in enumerate(segment.pages, first):
            stored = min(size, segment.start + len(segment.tokens) - i * size)
            if i >= self._held and i * size < end:
                self._runner.write_page(self.pages[i], data, stored)
        self.tokens += end - segment.start
        self._position = end
        return True

    def _finish(self) -> None:
        """Make it findable: the KV, and the state of the deepest position that has one."""
        tokens, request = self.request.tokens[: self._position], self.request
        residency = self._residency
        if not tokens:
            return
        pages = self.pages[: -(-self._position // residency.pools.page_tokens)]
        residency.cache.insert(tokens, pages, request.side)
        self.pages[: len(pages)] = pages
        if residency.store is None:
            request.restored = True
            return
        for position in sorted((p for p in self._found.states if p <= self._position), reverse=True):
            data = self._disk.state(self._found.states[position])
            if data is not None:
                self._restore_state(residency.store, tokens, position, data)
                return

    def _restore_state(self, store: CheckpointStore, tokens: array[int], position: int, data: bytes) -> None:
        request = self.request
        state = store.reserve(request.side)
        if state is None:
            return
        self._runner.write_state(state, data)
        points = [p for p in request.submit.edit_points if p.position == position]
        kept = store.commit(
            self._residency.cache,
            tokens,
            position,
            state,
            "live",
            request.submit.session,
            request.side,
            points or [EditPoint(position, "live", 1, "restored")],
            request.line,
        )
        request.restored = kept is not None
