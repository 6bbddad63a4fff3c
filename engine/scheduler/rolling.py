"""One state that follows each prefill, so that a request that is given up in the middle has not computed for nothing."""

from __future__ import annotations

from engine.cache.checkpoints import CheckpointStore
from engine.cache.node import Checkpoint, Claim
from engine.cache.radix import RadixCache
from engine.protocol import EditPoint
from engine.scheduler.request import Request
from engine.scheduler.step import Runner

ROLLING = "rolling"  # edge of the states kept at chunks' ends, of work that may be broken off any time
KIND = "decode"  # their class: the lightest


class Rolling:
    """Called between two steps. `store` is None for a model without recurrent layers, which keeps every token anyway."""

    def __init__(self, runner: Runner, cache: RadixCache, store: CheckpointStore | None) -> None:
        self._runner, self._cache, self._store = runner, cache, store

    def begin(self, request: Request, resumed: Checkpoint | None) -> None:
        """`request` goes on from `resumed`, which an earlier one of its line may have left in the middle."""
        request.kept_to = request.computed
        same = resumed is not None and resumed.position == request.computed
        if resumed is not None and same and not request.ahead and _claim(request) in resumed.claims:
            request.rolling = resumed

    def follow(self, request: Request, least_tokens: int) -> None:
        """`request` has computed a chunk, and its prompt goes on: its state is kept in place of the one kept before, once it
        is `least_tokens` past what is kept. Work ahead keeps states of its own in its steps."""
        store, replay = self._store, request.computed - request.kept_to
        if store is None or request.ahead or not request.remaining or replay < least_tokens:
            return
        tokens = request.tokens[: request.computed]
        state = self._take_back(request)
        if state is None:
            state = store.reserve_passing(request.side, replay, KIND)
        if state is None:
            return
        self._runner.copy_state(request.state, state)
        request.rolling = store.commit(
            self._cache,
            tokens,
            request.computed,
            state,
            KIND,
            request.submit.session,
            request.side,
            [EditPoint(request.computed, KIND, 1, ROLLING)],
            request.line,
            passing=True,
        )
        if request.rolling is not None:
            request.kept_to = request.computed

    def end(self, request: Request, intact: bool) -> None:
        """`request` leaves. Its live state takes the place of the one kept, unless it is lost or the same."""
        rolling, request.rolling = request.rolling, None
        if self._store is None or rolling is None:
            return
        if not intact:
            if self._store.holds(rolling):
                points = [EditPoint(rolling.position, KIND, 1, ROLLING)]
                session, side = request.submit.session, request.side
                self._store.claim(rolling, KIND, session, side, points, request.line)
        elif rolling.position != request.computed:
            request.rolling = rolling
            state = self._take_back(request)
            if state is not None:
                self._store.cancel(state)

    def _take_back(self, request: Request) -> int | None:
        """The state of the one kept, reserved; None when there is none, or somebody else has come to want it."""
        assert self._store is not None
        rolling, request.rolling = request.rolling, None
        if rolling is None or not self._store.holds(rolling):
            return None
        return self._store.take_back(rolling, _claim(request))


def _claim(request: Request) -> Claim:
    return request.line, KIND, ROLLING
