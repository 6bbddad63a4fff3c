"""Requests that want the same tokens computed share one computation.

An agent that gave up on an answer sends its prompt again, often before it hangs up. The second request of the same line,
with the same prompt and sampling, reads what the first one's computation says, from its start; the computation ends when
nobody reads it any more. What has ended is not joined: the cache makes that cheap, and the answer may be another one.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from engine.errors import FtError
from engine.front.supervision.pending import Messages, Pending
from engine.protocol import Submit

MAX_TOKENS = 16 << 20  # of prompts held at once: some hundred MB here
_OWN = {"rid", "edit_points", "supersedes"}  # what two requests for the same tokens may differ in
_COMPARED = tuple(f.name for f in fields(Submit) if f.name not in _OWN)


class Full(FtError):
    """As many requests are held as this engine holds; HTTP 429 with `Retry-After: retry_after_s`."""

    code = "FT-E0429 full"

    def __init__(self, held: int, retry_after_s: int) -> None:
        super().__init__(f"{held} requests are running or waiting already.", f"Try again in {retry_after_s} s.")
        self.retry_after_s = retry_after_s


class Worker(Protocol):
    """Who computes."""

    def submit(self, submit: Submit) -> Pending: ...

    def cancel(self, rid: str) -> None: ...


class Share:
    """One request's part in a computation. `joined` is the request that began it, None for that one itself."""

    def __init__(self, computations: Computations, pending: Pending, messages: Messages, joined: str | None) -> None:
        self.joined = joined
        self._computations = computations
        self._pending = pending
        self._messages = messages
        self._left = False

    @property
    def submit(self) -> Submit:
        return self._pending.submit

    async def get(self, timeout_s: float) -> dict[str, Any] | None:
        """As `Messages.get`."""
        return await self._messages.get(timeout_s)

    def tell(self, item: dict[str, Any] | FtError) -> None:
        """Say something to this reader alone, as if the worker did."""
        Messages.put(self._messages, item)

    def leave(self) -> None:
        """Read no more; the computation stops when nobody else reads it. Again: nothing."""
        if not self._left:
            self._left = True
            self._computations.left(self._pending)


class Computations:
    """All computations that somebody reads, and how many requests may be held at once."""

    def __init__(self, worker: Worker, max_requests: int) -> None:
        self._worker = worker
        self._max_requests = max_requests
        self._readers: dict[Pending, int] = {}
        self._tokens = 0

    def full(self) -> bool:
        """Whether one more request is one too many."""
        return len(self._readers) >= self._max_requests or self._tokens >= MAX_TOKENS

    def held(self) -> int:
        return len(self._readers)

    def submit(self, submit: Submit, may_join: bool) -> Share:
        """Join what computes the same for the same line, or hand `submit` to the worker. Raises as the worker does."""
        for pending in self._readers if may_join else ():
            if not pending.ended and _same(pending.submit, submit):
                self._readers[pending] += 1
                return Share(self, pending, pending.follow(), pending.submit.rid)
        pending = self._worker.submit(submit)
        self._readers[pending] = 1
        self._tokens += len(submit.tokens)
        return Share(self, pending, pending, None)

    def left(self, pending: Pending) -> None:
        """One reader less."""
        self._readers[pending] -= 1
        if self._readers[pending]:
            return
        del self._readers[pending]
        self._tokens -= len(pending.submit.tokens)
        if not pending.ended:
            self._worker.cancel(pending.submit.rid)


def _same(a: Submit, b: Submit) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in _COMPARED)
