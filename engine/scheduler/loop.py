"""The scheduling loop: admit, compute one step, hand out tokens. Runs in one thread; messages may be posted from others."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.cache.checkpoints import CheckpointStore
from engine.cache.hibernate import Disk
from engine.cache.radix import RadixCache
from engine.errors import BadRequest, FtError, WorkerGone
from engine.memory.pools import Pools
from engine.protocol import Submit
from engine.scheduler.balancing import Balancing
from engine.scheduler.batching import Budget, make_slice, share
from engine.scheduler.flight import Flight, as_error
from engine.scheduler.hibernation import Hibernation
from engine.scheduler.inbox import Inbox
from engine.scheduler.outbox import Emit, Outbox
from engine.scheduler.rate import Rate
from engine.scheduler.request import MatcherFactory
from engine.scheduler.residency import Residency
from engine.scheduler.roster import Roster
from engine.scheduler.served import Served, no_grammar
from engine.scheduler.step import Runner, Sampled

log = logging.getLogger(__name__)

FLUSH_S = 1.0  # at least this long for what is dirty when the engine stops


@dataclass(frozen=True, slots=True)
class Limits:
    """What the plan allows."""

    window_tokens: int
    vocab_size: int
    max_running: int = 8
    chunk_tokens: int = 512


class Scheduler:
    """`emit` gets protocol messages. `expert_counts` returns (hits, misses) so far. `between_layers` is called during a
    step as often as the runner asks whom to drop."""

    def __init__(
        self,
        runner: Runner,
        pools: Pools,
        cache: RadixCache,
        store: CheckpointStore | None,
        limits: Limits,
        emit: Emit,
        matcher: MatcherFactory = no_grammar,
        expert_counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
        between_layers: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        disk: Disk | None = None,
        balancing: Callable[[Residency], Balancing] | None = None,
    ) -> None:
        self.limits = limits
        self.decode_rate = Rate(clock)
        self.prefill_rate = Rate(clock)
        self._runner = runner
        self._pools = pools
        self._residency = Residency(runner, pools, cache, store)
        self.hibernation = None if disk is None else Hibernation(disk, self._residency, runner, clock=clock)
        self._cache = cache
        self._outbox = Outbox(emit, expert_counts)
        self._roster = Roster(limits.max_running, pools, cache, self._residency, self.hibernation, self._outbox, clock)
        self.running, self.waiting = self._roster.running, self._roster.waiting
        self.memory = None if balancing is None else balancing(self._residency)
        if self.memory is not None:
            self._roster.more_pages = self.memory.make_room
            self._residency.press = self.memory.press
            self.memory.running = self.running
            self.memory.changed.append(self._resized)
            self._resized()
        self._clock = clock
        self._budget = Budget(limits.chunk_tokens)
        self._inbox = Inbox()
        self._flight = Flight(self._inbox, self._outbox, clock, between_layers)
        self._served = Served(self._roster, cache, self._inbox, self._outbox, matcher, clock)
        if self.memory is not None:
            self._served.ended = self.memory.outlook.ended
        self._stop_at: float | None = None

    # Other threads

    def post(self, message: dict[str, Any]) -> None:
        """Queue a message (`submit`, `cancel`, or any other, which `run` hands to its callback). Thread-safe.

        A cancel also reaches the step that is running: its rows are dropped before the next layer.
        """
        self._inbox.post(message)

    # The loop's thread

    def run(self, other: Callable[[dict[str, Any]], None]) -> None:
        """Serve until `stop`; `other` gets every message that is neither submit nor cancel. Sleeps on the inbox while
        there is nothing to compute."""
        while True:
            busy = self.step()
            self._save()
            if self._stop_at is not None and (not busy or self._clock() >= self._stop_at):
                break
            try:
                while True:
                    message = self._inbox.get(not busy, None if busy else self._idle_s())
                    busy = True
                    if not self._handle(message):
                        other(message)
            except queue.Empty:
                continue
        self._served.fail_all(WorkerGone("The engine is stopping.", "Start it again: ft engine start"))
        if self.hibernation is not None:
            self.hibernation.flush(max(self._stop_at, self._clock() + FLUSH_S))
            self.hibernation.close()

    def fail(self, error: FtError) -> None:
        """Every request gets this error; nothing more will be computed."""
        self._served.fail_all(error, intact=False)

    def free_pages(self, n: int) -> None:
        """Give up what is cached for up to `n` more free pages."""
        self._cache.evict(n)

    def stop(self, drain_s: float) -> None:
        """Make `run` return once nothing is left to do, or after `drain_s`; what is left then gets an error."""
        self._stop_at = self._clock() + drain_s

    def submit(self, submit: Submit) -> None:
        """Queue a request, or answer at once with the error why it can never be served."""
        self._served.submit(submit, self.limits.window_tokens, self.limits.vocab_size)

    def cancel(self, rid: str) -> None:
        """Stop a request at once; unknown ids are ignored. What it computed stays cached."""
        self._served.cancel(rid)

    def step(self) -> bool:
        """One forward over everything that can run. Returns False when there was nothing to do."""
        if self.hibernation is not None:
            self.hibernation.advance(alone=not self._roster.real_work())
        if self.memory is not None and (self.running or self.waiting):
            self.memory.between(self.running, any(r.decoding for r in self.running))
        self._roster.admit(self._budget.tokens_per_s, self._served.end_prefill)
        served = len(self._served)
        batch = self._roster.fill(share(self.running, self._budget.tokens(self.running)), self._served.give_up)
        if not batch:
            if len(self._served) < served:
                return True  # who had no room is gone; somebody else may have
            restoring = self.hibernation is not None and self.hibernation.restoring
            assert not self.waiting or self.running or restoring, "requests wait and nothing runs"
            return restoring
        residency, page_tokens = self._residency, self._pools.page_tokens
        slices = [make_slice(r, n, page_tokens, residency.plan_snapshots(r, r.computed + n)) for r, n in batch]
        flight = self._flight
        flight.begin(batch)
        try:
            sampled = self._runner.step(slices, flight.aborted)
        except Exception as failure:  # whatever the device raises, the requests in the step must be answered
            log.exception("the step failed")
            for request, _ in batch:  # their KV and state are undefined from where the step began
                self._served.fail(request, as_error(failure), intact=False)
            return True
        self._measured(flight.end())
        self._absorb({s.seq: s for s in sampled})
        return True

    # One step's parts

    def _idle_s(self) -> float | None:
        """Nothing is to be computed: what memory may do now, and when it or the disk has something to do again."""
        due = [
            None if self.memory is None else self.memory.idle(),
            None if self.hibernation is None else self.hibernation.due_s(),
        ]
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _resized(self) -> None:
        """Memory was shared out anew: requests may be as long as that allows."""
        assert self.memory is not None
        self.limits = replace(self.limits, window_tokens=self.memory.window_tokens)

    def _save(self) -> None:
        """Something goes to disk when nobody waits for anything."""
        if self.hibernation is not None and not self._roster.real_work():
            self.hibernation.tick()

    def _measured(self, seconds: float) -> None:
        """The step took so long; one that was broken off says nothing about the next."""
        prefilled = self._flight.prefilled
        self.prefill_rate.add(prefilled)
        if self._flight.broken_off:
            return
        self._budget.measured(prefilled, seconds)
        if self.memory is not None:
            self.memory.stepped(sum(r.decoding for r, _ in self._flight.batch), prefilled, seconds)

    def _absorb(self, sampled: dict[int, Sampled]) -> None:
        """What the step computed becomes part of its requests."""
        for request, n in self._flight.batch:
            if request.seq in self._flight.broken_off:
                if self._inbox.cancelled(request.rid):
                    self._inbox.handled(request.rid)
                    self._served.finish(request, "cancelled", intact=False)
                else:
                    self._roster.send_back(request, intact=False)
                continue
            was_decoding = request.decoding
            request.computed += n
            if not was_decoding:
                self._residency.commit(request)
                self._residency.rolling.follow(request, self.limits.chunk_tokens // 2)
                self._outbox.progress(request)
            if request.computed < len(request.tokens):
                continue
            if request.times.prefilled is None:
                request.times.prefilled = self._clock()
            if request.seq in sampled:
                self.decode_rate.add(1)
                self._served.take(request, sampled[request.seq])
            else:
                self._served.end_prefill(request)

    def _handle(self, message: dict[str, Any]) -> bool:
        """True when the message was for the scheduler."""
        if message["t"] == "submit":
            try:
                self.submit(Submit.parse(message))
            except (TypeError, ValueError, KeyError) as failure:
                self._inbox.arrived(message.get("rid", ""))
                self._outbox.error(str(message.get("rid", "")), BadRequest(f"A submit that does not parse: {failure}."))
        elif message["t"] == "cancel":
            self.cancel(message["rid"])
        else:
            return False
        return True
