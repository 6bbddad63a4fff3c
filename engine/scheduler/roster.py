"""Who runs and who waits: places and pages are given in turn, and taken back from background work."""

from __future__ import annotations

from collections.abc import Callable

from engine.cache.radix import RadixCache
from engine.memory.arena import ArenaFull
from engine.memory.pools import Pools
from engine.scheduler.admission import WaitingLine, leader, missing_pages
from engine.scheduler.anticipation import reach
from engine.scheduler.hibernation import Hibernation
from engine.scheduler.outbox import Outbox
from engine.scheduler.request import BACKGROUND, Request
from engine.scheduler.residency import Residency


class Roster:
    """`running` and `waiting` are all requests there are; at most `max_running` run. `more_pages` is asked for memory that others
    have, with whether nothing else is left to do; True when it came."""

    def __init__(
        self,
        max_running: int,
        pools: Pools,
        cache: RadixCache,
        residency: Residency,
        hibernation: Hibernation | None,
        outbox: Outbox,
        clock: Callable[[], float],
    ) -> None:
        self.running: list[Request] = []
        self.waiting = WaitingLine()
        self._max_running = max_running
        self._pools = pools
        self._cache = cache
        self._residency = residency
        self._hibernation = hibernation
        self._outbox = outbox
        self._clock = clock
        self.more_pages: Callable[[int, bool], bool] = lambda pages, last: False

    def admit(self, tokens_per_s: float | None, complete: Callable[[Request], None]) -> None:
        """Let in whom the places and pages allow, in turn. `complete` gets what then has nothing left to compute."""
        if self.real_work():
            # Real work finds what was computed ahead in the cache, and no request holds it.
            for request in [r for r in self.running if r.rank == BACKGROUND]:
                self.send_back(request)
        for request in self.waiting.in_turn(self.running, tokens_per_s):
            if request.rank == BACKGROUND and self.real_work():
                return
            if len(self.running) >= self._max_running and not self._make_way(request):
                return
            if self._follows(request):
                continue
            if not self._fits(request):
                return
            if self._comes_from_disk(request):
                continue
            self.waiting.remove(request)
            if request.ahead:
                request.truncate(reach(request, self._cache, self._pools.pages))
            self._enter(request)
            if request.ahead and not request.remaining:
                complete(request)

    def _fits(self, request: Request) -> bool:
        """Make room for `request`: memory that others can spare, then the places of background work."""
        while missing := missing_pages(request, self.running, self._cache, self._pools.pages):
            if not request.ahead and self.more_pages(missing, False):
                continue
            if not self.running:
                return True  # it may still end before it needs them all
            if not self._make_way(request):
                return False
        return True

    def real_work(self) -> bool:
        """True while somebody waits for something."""
        return any(r.rank < BACKGROUND for r in [*self.running, *self.waiting])

    def fill(self, wanted: list[tuple[Request, int]], give_up: Callable[[Request], None]) -> list[tuple[Request, int]]:
        """Pages ahead of the step, the most important request first; the youngest is sent back when they run out."""
        batch: list[tuple[Request, int]] = []
        for request, n in wanted:
            while request in self.running:
                try:
                    self._residency.grow(request, request.computed + n)
                except ArenaFull:
                    self._find_pages(request, n, give_up)
                else:
                    batch.append((request, n))
                    break
        return batch

    def _find_pages(self, request: Request, n: int, give_up: Callable[[Request], None]) -> None:
        """Have there be more pages for the next `n` tokens of `request`, or one request less that wants some."""
        pages = -(-(request.computed + n) // self._pools.page_tokens) - len(request.pages)
        if request.ahead:
            give_up(request)
        elif self.more_pages(pages, False) or (self._hibernation is not None and self._hibernation.give_up()):
            return
        elif len(self.running) > 1:
            self.send_back(max(self.running, key=lambda r: r.order))
        elif not self.more_pages(pages, True):
            give_up(request)

    def send_back(self, request: Request, intact: bool = True) -> None:
        if self._hibernation is not None:
            self._hibernation.leaves(request)
        self._residency.leave(request, intact)
        self.running.remove(request)
        self.waiting.add(request)
        self._outbox.preempted(request)

    def _comes_from_disk(self, request: Request) -> bool:
        """True while what disk has of `request` is read in; the first time, that begins."""
        if self._hibernation is None:
            return False
        if request.times.admitted is None:
            request.times.admitted = self._clock()
        return self._hibernation.brings(request)

    def _make_way(self, request: Request) -> bool:
        """Send a background request back for `request`; False when there is none to send."""
        victim = max(self.running, key=lambda r: r.order)
        if victim.rank < BACKGROUND or request.rank == BACKGROUND:
            return False
        self.send_back(victim)
        return True

    def _follows(self, request: Request) -> bool:
        """True while a running request is about to cache what this one needs."""
        if request.waits_for is not None:
            ahead, tokens = request.waits_for
            if ahead in self.running and ahead.computed < tokens:
                return True
        request.waits_for = leader(request, self.running, self._cache)
        if request.waits_for is None:
            return False
        ahead = request.waits_for[0]
        ahead.rank = min(ahead.rank, request.rank)
        return True

    def _enter(self, request: Request) -> None:
        admitted = self._clock()
        match = self._residency.enter(request)
        self.running.append(request)
        if request.accepted:
            return
        request.accepted = True
        if request.times.admitted is None:
            request.times.admitted = admitted
        request.times.restored_s = self._clock() - request.times.admitted
        request.resume_at = request.computed
        request.seen_tokens = match.tokens
        self._outbox.accepted(request)

    def remove(self, request: Request, intact: bool) -> None:
        """The request is over. What it computed stays cached, unless its last step was not `intact`."""
        if self._hibernation is not None:
            self._hibernation.leaves(request)
        if request in self.running:
            self._residency.leave(request, intact)
            self.running.remove(request)
        else:
            self.waiting.remove(request)
