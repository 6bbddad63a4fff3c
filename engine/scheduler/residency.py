"""A running request's place in memory: its pages, its live state, and their way into and out of the prefix cache."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

from engine.cache.checkpoints import CheckpointStore
from engine.cache.claims import base
from engine.cache.placement import snapshots
from engine.cache.radix import IDLE, KEPT, Match, RadixCache
from engine.memory.arena import ArenaFull
from engine.memory.pools import Pools
from engine.protocol import EditPoint
from engine.scheduler.request import Request
from engine.scheduler.rolling import ROLLING, Rolling
from engine.scheduler.step import Runner

EVICT_AHEAD_PAGES = 8  # eviction scans the tree, so it frees a few more pages than are asked for


class Holder(Protocol):
    """Who notes pages that it holds, and a state (-1: none). What is moved is changed in its notes."""

    pages: list[int]
    state: int


class Residency:
    """`store` is None for a model without recurrent layers. `holders` are the requests inside, and others that hold pages."""

    def __init__(self, runner: Runner, pools: Pools, cache: RadixCache, store: CheckpointStore | None) -> None:
        if (store is None) != (pools.states is None):
            raise ValueError("a checkpoint store goes with a state pool")
        self.pools = pools
        self.cache = cache
        self.store = store
        self.holders: list[Holder] = []
        self.press: Callable[[int], None] = lambda pages: None  # told before something cached is given up for so many
        self.enters: Callable[[Request, Match], None] = lambda request, match: None  # told before it resumes
        self.rolling = Rolling(runner, cache, store)
        self._runner = runner

    def enter(self, request: Request) -> Match:
        """Give `request` what is cached of it: shared pages, a copy of the partial one, the checkpoint's state.

        Sets its pages, state, computed and planned snapshots. Returns the match it started from.
        """
        match = self.match(request)
        points = request.submit.edit_points
        self.enters(request, match)
        if self.store is not None:
            self.store.used(match, request.submit.session, request.side, points, request.line)
        for page in match.pages:
            self.pools.pages.retain(page)
        whole, inside = divmod(match.resume_at, self.pools.page_tokens)
        request.pages, request.computed = match.pages[:whole], match.resume_at
        if inside:
            self._copy_partial(request, match.pages[whole], inside)
        request.fresh_from = max(match.tokens, request.computed)
        self.rolling.begin(request, match.checkpoint)
        self._account(request)
        if self.pools.states is not None:
            request.state = self.pools.states.alloc()
            if request.computed and match.checkpoint is not None:
                self._runner.copy_state(match.checkpoint.state, request.state)
            else:
                self._runner.zero_state(request.state)
        if self.store is not None:
            end = min(request.prompt_tokens, len(request.tokens))
            request.planned = snapshots(match, end, points, self.store.grid, ends=not request.ahead)
        self.holders.append(request)
        return match

    def match(self, request: Request) -> Match:
        """What is cached of `request`: all of it, when nothing is to be sampled from its last token."""
        return self.cache.match(request.tokens + request.tokens[-1:] if request.ahead else request.tokens)

    def grow(self, request: Request, end: int) -> None:
        """Pages for positions [0, end), evicting from the cache as needed. Raises ArenaFull when running requests hold
        too many; then nothing is taken."""
        request.pages += self.take(-(-end // self.pools.page_tokens) - len(request.pages), request.ahead)

    def plan_snapshots(self, request: Request, end: int) -> list[tuple[int, int]]:
        """Reserve a state for each planned position in (computed, end]; returns (position, state id) and notes them as
        pending. A position without room under the cap is left out."""
        if self.store is None:
            return []
        while request.planned and request.planned[0][0] <= end:
            position, kind = request.planned.pop(0)
            self._reserve(request, position, kind)
        if request.ahead and end < len(request.tokens) and all(position < end for position, _, _ in request.pending):
            self._reserve(request, end, ROLLING)
        return [(position, state) for position, _, state in request.pending]

    def commit(self, request: Request) -> None:
        """Make what is computed findable, and keep the pending snapshots."""
        tokens = request.tokens[: request.computed]
        end = self.cache.insert(tokens, request.pages, request.side)
        if not request.side:
            self.cache.uses.came(request.line if request.submit.session else request.rid, end)
        if request.ahead and request.fresh_from < request.computed:
            path = self.cache.path(tokens, request.computed)
            self.cache.marks.add(path, request.fresh_from, request.computed, request.submit.session)
            request.computed_ahead += request.computed - request.fresh_from
            request.fresh_from = request.computed
        for position, kind, state in request.pending:
            self._keep(request, tokens, position, kind, state)
        request.pending.clear()

    def leave(self, request: Request, intact: bool = True) -> None:
        """Free everything the request holds, after handing what is computed to the cache.

        `intact` is false when a step over this request was broken off: then its live state is worthless and its pending
        snapshots are too.
        """
        if self.store is not None:
            for _, _, state in request.pending:
                self.store.cancel(state)
        request.pending.clear()
        self.commit(request)
        self.rolling.end(request, intact)
        if request.state >= 0:
            self._leave_state(request, intact)
        for page in request.pages:
            self.pools.pages.release(page)
        request.pages, request.state, request.computed, request.planned = [], -1, 0, []
        self.holders.remove(request)

    def _leave_state(self, request: Request, intact: bool) -> None:
        assert self.store is not None and self.pools.states is not None
        tokens = request.tokens[: request.computed]
        whole = request.computed == len(request.tokens)
        kind = ("live" if whole else ROLLING) if request.ahead else "decode"
        if intact and tokens:
            made = self.store.at(self.cache, tokens, request.computed)
            if made is not None:  # room for the same state once more would cost another checkpoint
                points, kind = self._points(request, request.computed, kind)
                self.store.claim(made, kind, request.submit.session, request.side, points, request.line)
            elif self.store.adopt(request.state, request.side):
                self._keep(request, tokens, request.computed, kind, request.state)
                return
        self.pools.states.release(request.state)

    def _reserve(self, request: Request, position: int, kind: str) -> None:
        assert self.store is not None
        state = self.store.reserve(request.side, request.rolling)
        if state is not None:
            request.pending.append((position, kind, state))

    def _keep(self, request: Request, tokens: array[int], position: int, kind: str, state: int) -> None:
        """Commit one reserved state for the edit points at `position`, or for `kind` where there are none."""
        assert self.store is not None
        points, kind = self._points(request, position, kind)
        session = request.submit.session
        made = self.store.commit(self.cache, tokens, position, state, kind, session, request.side, points, request.line)
        if made is not None:
            request.kept_to = max(request.kept_to, position)

    def _points(self, request: Request, position: int, kind: str) -> tuple[list[EditPoint], str]:
        """(the edit points that a checkpoint at `position` is for, its kind where there are none)."""
        if kind == ROLLING:
            return [EditPoint(position, "decode", 1, ROLLING)], "decode"
        grid = 1 if self.store is None else self.store.grid
        points = [p for p in request.submit.edit_points if p.position // grid * grid == position]
        if kind == "live" and request.ahead:
            points.append(EditPoint(position, "live", 1, "predicted"))
        return points, kind

    def _account(self, request: Request) -> None:
        """A real request uses what was computed ahead; what it leaves of its own line's was for nothing."""
        if request.ahead:
            return
        marks, line = self.cache.marks, base(request.line)
        request.anticipated += marks.use(self.cache.path(request.tokens, request.computed), request.computed)
        if not request.side and line:
            request.wasted += marks.settle(line)

    def take(self, n: int, ahead: bool = False) -> list[int]:
        """`n` pages, evicting from the cache as needed; for work `ahead` only what nobody needs. Raises ArenaFull."""
        if n <= 0:
            return []
        pool = self.pools.pages
        if pool.free < n and not ahead:
            self.press(n - pool.free)
        if pool.free < n:
            self.cache.evict(n - pool.free + EVICT_AHEAD_PAGES, IDLE if ahead else KEPT)
        return pool.alloc(n)

    def _copy_partial(self, request: Request, source: int, tokens: int) -> None:
        """Append a private copy of the page the request resumes in. The source is retained until then. In a pool so full
        that not even one page is left, the request starts lower: at the page, or at 0 where that needs a checkpoint."""
        try:
            (target,) = self.take(1, request.ahead)
        except ArenaFull:
            request.computed -= tokens
            if self.store is not None:
                for page in request.pages:
                    self.pools.pages.release(page)
                request.pages, request.computed = [], 0
        else:
            self._runner.copy_page(source, target, tokens)
            request.pages.append(target)
        self.pools.pages.release(source)
