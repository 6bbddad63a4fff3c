"""The step in flight: whom it computes for, whose rows are dropped before its next layer, and what each one's part of it took."""

from __future__ import annotations

from collections.abc import Callable, Set

from engine.errors import FtError
from engine.scheduler.anticipation import spares
from engine.scheduler.inbox import Inbox
from engine.scheduler.outbox import Outbox
from engine.scheduler.request import BACKGROUND, Request

PROGRESS_EVERY_S = 1.0


class StepFailed(FtError):
    """The hardware step raised; the requests in it are lost."""

    code = "FT-E0501 step-failed"


def as_error(failure: Exception) -> FtError:
    """What a step raised, as an error that its requests can be answered with."""
    return failure if isinstance(failure, FtError) else StepFailed(f"The step failed: {failure}.", "Send it again.")


class Flight:
    """`between_layers` is called as often as the runner asks whom to drop."""

    def __init__(
        self, inbox: Inbox, outbox: Outbox, clock: Callable[[], float], between_layers: Callable[[], None]
    ) -> None:
        self.batch: list[tuple[Request, int]] = []  # requests and how many tokens of each
        self.broken_off: set[int] = set()  # by their `seq`
        self._inbox = inbox
        self._outbox = outbox
        self._clock = clock
        self._between_layers = between_layers
        self._started = self._last_sign = 0.0

    def begin(self, batch: list[tuple[Request, int]]) -> None:
        self.batch = batch
        self.broken_off = set()
        self._last_sign = self._started = self._clock()

    def aborted(self) -> Set[int]:
        """Asked between layers: rows to drop. Also the sign of life of a long step."""
        self._between_layers()
        now = self._clock()
        if now - self._last_sign >= PROGRESS_EVERY_S:
            self._last_sign = now
            for request, _ in self.batch:
                self._outbox.progress(request)
        arrivals = self._inbox.arrivals()
        for request, n in self.batch:
            if request.seq in self.broken_off:
                continue
            urgent = request.rank == BACKGROUND and not all(spares(prompt, request, n) for prompt in arrivals)
            if urgent or self._inbox.cancelled(request.rid):
                self.broken_off.add(request.seq)
        return frozenset(self.broken_off)

    def end(self) -> float:
        """The seconds it took; every request's share of them, by tokens, is added to what computing it took."""
        seconds = self._clock() - self._started
        tokens = sum(n for _, n in self.batch)
        for request, n in self.batch:
            if request.times.first_token is None:
                request.times.computed_s += seconds * n / tokens
        return seconds

    @property
    def prefilled(self) -> int:
        """Prompt tokens that were computed."""
        return sum(n for r, n in self.batch if not r.decoding and r.seq not in self.broken_off)
