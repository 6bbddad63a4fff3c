"""The scheduling loop: admit, compute one step, hand out tokens. Runs in one thread; messages may be posted from others."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from engine.cache.checkpoints import CheckpointStore
from engine.cache.hibernate import Disk
from engine.cache.radix import RadixCache
from engine.errors import BadRequest, DoesNotFit, FtError, Unsupported, WorkerGone
from engine.memory.pools import Pools
from engine.protocol import Submit
from engine.scheduler.admission import refusal
from engine.scheduler.anticipation import displaced, spares
from engine.scheduler.balancing import Balancing
from engine.scheduler.batching import Budget, make_slice, share
from engine.scheduler.hibernation import Hibernation
from engine.scheduler.inbox import Inbox
from engine.scheduler.outbox import Emit, Outbox
from engine.scheduler.rate import Rate
from engine.scheduler.request import BACKGROUND, MatcherFactory, Request, Times
from engine.scheduler.residency import Residency
from engine.scheduler.roster import Roster
from engine.scheduler.step import Runner, Sampled

log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 1.0
FLUSH_S = 1.0  # at least this long for what is dirty when the engine stops


class StepFailed(FtError):
    """The hardware step raised; the requests in it are lost."""

    code = "FT-E0501 step-failed"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the plan allows."""

    window_tokens: int
    vocab_size: int
    max_running: int = 8
    chunk_tokens: int = 512


def no_grammar(grammar: str) -> Any:
    raise Unsupported("Constrained output is not available here.", "Send the request without a grammar.")


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
        self._matcher = matcher
        self._between_layers = between_layers
        self._clock = clock
        self._budget = Budget(limits.chunk_tokens)
        self._inbox = Inbox()
        self._by_rid: dict[str, Request] = {}
        self._next_seq = 0
        self._in_step: list[tuple[Request, int]] = []
        self._broken_off: set[int] = set()
        self._last_sign = 0.0
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
        for request in list(self._by_rid.values()):
            self._fail_request(request, WorkerGone("The engine is stopping.", "Start it again: ft engine start"))
        if self.hibernation is not None:
            self.hibernation.flush(max(self._stop_at, self._clock() + FLUSH_S))
            self.hibernation.close()

    def fail(self, error: FtError) -> None:
        """Every request gets this error; nothing more will be computed."""
        for request in list(self._by_rid.values()):
            self._fail_request(request, error, intact=False)

    def free_pages(self, n: int) -> None:
        """Give up what is cached for up to `n` more free pages."""
        self._cache.evict(n)

    def stop(self, drain_s: float) -> None:
        """Make `run` return once nothing is left to do, or after `drain_s`; what is left then gets an error."""
        self._stop_at = self._clock() + drain_s

    def submit(self, submit: Submit) -> None:
        """Queue a request, or answer at once with the error why it can never be served."""
        now = self._clock()
        self._inbox.arrived(submit.rid)
        error = refusal(submit, self.limits.window_tokens, self.limits.vocab_size)
        if submit.rid in self._by_rid:
            error = BadRequest(f"request {submit.rid!r} is already being served.", "Give each request its own id.")
        if error is None:
            try:
                matcher = self._matcher(submit.grammar) if submit.grammar and submit.forced is None else None
            except FtError as failure:
                error = failure
        if error is not None:
            self._inbox.handled(submit.rid)
            self._outbox.error(submit.rid, error)
            return
        for old in displaced(submit, [*self.running, *self.waiting]):
            self._finish(old, "cancelled", None)
        request = Request(submit, self._next_seq, Times(now), matcher)
        request.expected = request.prompt_tokens - self._cache.match(request.tokens).resume_at
        self._next_seq += 1
        self._by_rid[submit.rid] = request
        self.waiting.add(request)

    def cancel(self, rid: str) -> None:
        """Stop a request at once; unknown ids are ignored. What it computed stays cached."""
        self._inbox.handled(rid)
        request = self._by_rid.get(rid)
        if request is not None:
            self._finish(request, "cancelled", None)

    def step(self) -> bool:
        """One forward over everything that can run. Returns False when there was nothing to do."""
        if self.hibernation is not None:
            self.hibernation.advance(alone=not self._roster.real_work())
        if self.memory is not None and (self.running or self.waiting):
            self.memory.between(self.running, any(r.decoding for r in self.running))
        self._roster.admit(self._budget.tokens_per_s, self._end_prefill)
        served = len(self._by_rid)
        batch = self._roster.fill(share(self.running, self._budget.tokens(self.running)), self._give_up)
        if not batch:
            if len(self._by_rid) < served:
                return True  # who had no room is gone; somebody else may have
            restoring = self.hibernation is not None and self.hibernation.restoring
            assert not self.waiting or self.running or restoring, "requests wait and nothing runs"
            return restoring
        slices = [
            make_slice(
                request, n, self._pools.page_tokens, self._residency.plan_snapshots(request, request.computed + n)
            )
            for request, n in batch
        ]
        self._in_step = batch
        self._broken_off = set()
        self._last_sign = started = self._clock()
        try:
            sampled = self._runner.step(slices, self._aborted)
        except Exception as failure:  # whatever the device raises, the requests in the step must be answered
            log.exception("the step failed")
            self._fail(failure)
            return True
        finally:
            self._in_step = []
        prefilled = sum(n for r, n in batch if not r.decoding and r.seq not in self._broken_off)
        if not self._broken_off:
            self._budget.measured(prefilled, self._clock() - started)
        self.prefill_rate.add(prefilled)
        if self.memory is not None and not self._broken_off:
            decodes = sum(r.decoding for r, _ in batch)
            self.memory.stepped(decodes, prefilled, self._clock() - started)
        self._absorb(batch, {s.seq: s for s in sampled})
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

    def _give_up(self, request: Request) -> None:
        """There is no page for `request`, and nobody else to take one from."""
        if request.ahead:
            self._finish(request, "cancelled", None)
        else:
            self._fail_request(request, DoesNotFit("KV memory is exhausted.", "Serve with a larger --kv."))

    def _aborted(self) -> Set[int]:
        """Asked between layers: rows to drop. Also the sign of life of a long step."""
        self._between_layers()
        now = self._clock()
        if now - self._last_sign >= PROGRESS_EVERY_S:
            self._last_sign = now
            for request, _ in self._in_step:
                self._outbox.progress(request)
        arrivals = self._inbox.arrivals()
        for request, n in self._in_step:
            if request.seq in self._broken_off:
                continue
            urgent = request.rank == BACKGROUND and not all(spares(prompt, request, n) for prompt in arrivals)
            if urgent or self._inbox.cancelled(request.rid):
                self._broken_off.add(request.seq)
        return frozenset(self._broken_off)

    def _absorb(self, batch: list[tuple[Request, int]], sampled: dict[int, Sampled]) -> None:
        for request, n in batch:
            if request.seq in self._broken_off:
                if self._inbox.cancelled(request.rid):
                    self._inbox.handled(request.rid)
                    self._finish(request, "cancelled", None, intact=False)
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
                self._take(request, sampled[request.seq])
            else:
                self._end_prefill(request)

    def _end_prefill(self, request: Request) -> None:
        """A request that samples nothing is complete, or as far as its pages reached."""
        self._finish(request, "stop" if len(request.tokens) >= request.prompt_tokens else "length", None)

    def _take(self, request: Request, chosen: Sampled) -> None:
        """A token was chosen for `request`: append and send it, or finish. A stop id is reported, not sent."""
        token, submit = chosen.token, request.submit
        request.append(token)
        self.decode_rate.add(1)
        if request.times.first_token is None:
            request.times.first_token = self._clock()
        forced_left = None if submit.forced is None else len(submit.forced) - request.output_tokens
        if token in submit.stop_ids and not forced_left:
            self._finish(request, "stop", token)
            return
        self._outbox.token(request, chosen)
        if request.matcher is not None:
            request.matcher.advance(token)
        if forced_left == 0 or (request.matcher is not None and request.matcher.done):
            self._finish(request, "stop", None)
        elif request.output_tokens >= submit.max_tokens:
            self._finish(request, "length", None)

    def _finish(self, request: Request, reason: str, stop_id: int | None, intact: bool = True) -> None:
        if self.memory is not None:
            self.memory.outlook.ended(request, self._clock())
        self._release(request, intact)
        request.times.finished = self._clock()
        self._outbox.done(request, reason, stop_id)

    def _fail(self, failure: Exception) -> None:
        """The step raised: KV and state of its rows are undefined from their start on."""
        error = (
            failure if isinstance(failure, FtError) else StepFailed(f"The step failed: {failure}.", "Send it again.")
        )
        for request, _ in self._in_step:
            self._fail_request(request, error, intact=False)

    def _fail_request(self, request: Request, error: FtError, intact: bool = True) -> None:
        self._release(request, intact)
        self._outbox.error(request.rid, error)

    def _release(self, request: Request, intact: bool) -> None:
        self._roster.remove(request, intact)
        del self._by_rid[request.rid]

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
