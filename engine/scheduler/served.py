"""The requests there are, by id: how each one comes in, gets its tokens, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.cache.radix import RadixCache
from engine.errors import BadRequest, DoesNotFit, FtError, Unsupported
from engine.protocol import Submit
from engine.scheduler.admission import refusal
from engine.scheduler.anticipation import displaced
from engine.scheduler.inbox import Inbox
from engine.scheduler.outbox import Outbox
from engine.scheduler.request import MatcherFactory, Request, Times
from engine.scheduler.roster import Roster
from engine.scheduler.step import Sampled


def no_grammar(grammar: str) -> Any:
    raise Unsupported("Constrained output is not available here.", "Send the request without a grammar.")


class Served:
    """Every request is answered once, by `done` or by an error, and leaves the roster then. `ended` is told of each that is not
    refused, with the time."""

    def __init__(
        self,
        roster: Roster,
        cache: RadixCache,
        inbox: Inbox,
        outbox: Outbox,
        matcher: MatcherFactory,
        clock: Callable[[], float],
    ) -> None:
        self.ended: Callable[[Request, float], None] = lambda request, now: None
        self._roster = roster
        self._cache = cache
        self._inbox = inbox
        self._outbox = outbox
        self._matcher = matcher
        self._clock = clock
        self._by_rid: dict[str, Request] = {}
        self._next_seq = 0

    def __len__(self) -> int:
        return len(self._by_rid)

    def submit(self, submit: Submit, window_tokens: int, vocab_size: int) -> None:
        """Queue a request, or answer at once with the error why it can never be served."""
        now = self._clock()
        self._inbox.arrived(submit.rid)
        error = refusal(submit, window_tokens, vocab_size)
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
        for old in displaced(submit, [*self._roster.running, *self._roster.waiting]):
            self.finish(old, "cancelled")
        request = Request(submit, self._next_seq, Times(now), matcher)
        request.expected = request.prompt_tokens - self._cache.match(request.tokens).resume_at
        self._next_seq += 1
        self._by_rid[submit.rid] = request
        self._roster.waiting.add(request)

    def cancel(self, rid: str) -> None:
        """Stop a request at once; unknown ids are ignored. What it computed stays cached."""
        self._inbox.handled(rid)
        request = self._by_rid.get(rid)
        if request is not None:
            self.finish(request, "cancelled")

    def take(self, request: Request, chosen: Sampled) -> None:
        """A token was chosen for `request`: append and send it, or finish. A stop id is reported, not sent."""
        token, submit = chosen.token, request.submit
        request.append(token)
        if request.times.first_token is None:
            request.times.first_token = self._clock()
        forced_left = None if submit.forced is None else len(submit.forced) - request.output_tokens
        if token in submit.stop_ids and not forced_left:
            self.finish(request, "stop", token)
            return
        self._outbox.token(request, chosen)
        if request.matcher is not None:
            request.matcher.advance(token)
        if forced_left == 0 or (request.matcher is not None and request.matcher.done):
            self.finish(request, "stop")
        elif request.output_tokens >= submit.max_tokens:
            self.finish(request, "length")

    def end_prefill(self, request: Request) -> None:
        """A request that samples nothing is complete, or as far as its pages reached."""
        self.finish(request, "stop" if len(request.tokens) >= request.prompt_tokens else "length")

    def give_up(self, request: Request) -> None:
        """There is no page for `request`, and nobody else to take one from."""
        if request.ahead:
            self.finish(request, "cancelled")
        else:
            self.fail(request, DoesNotFit("KV memory is exhausted.", "Serve with a larger --kv."))

    def finish(self, request: Request, reason: str, stop_id: int | None = None, intact: bool = True) -> None:
        """It ends for `reason`; not `intact`: what its last step wrote is undefined."""
        self.ended(request, self._clock())
        self._release(request, intact)
        request.times.finished = self._clock()
        self._outbox.done(request, reason, stop_id)

    def fail(self, request: Request, error: FtError, intact: bool = True) -> None:
        self._release(request, intact)
        self._outbox.error(request.rid, error)

    def fail_all(self, error: FtError, intact: bool = True) -> None:
        """Every request gets this error."""
        for request in list(self._by_rid.values()):
            self.fail(request, error, intact)

    def _release(self, request: Request, intact: bool) -> None:
        self._roster.remove(request, intact)
        del self._by_rid[request.rid]
