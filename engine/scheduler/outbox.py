"""What the front is told of its requests: one message for each thing that happens to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import FtError
from engine.scheduler.request import Request
from engine.scheduler.step import Sampled

Emit = Callable[[dict[str, Any]], None]
ExpertCounts = Callable[[], tuple[int, int]]


class Outbox:
    """`emit` gets protocol messages; `expert_counts` returns (hits, misses) so far."""

    def __init__(self, emit: Emit, expert_counts: ExpertCounts) -> None:
        self._emit = emit
        self._expert_counts = expert_counts

    def accepted(self, request: Request) -> None:
        """Its prefill starts, from what is known to be cached. From here on its experts are counted."""
        request.experts_before = self._expert_counts()
        usage = {name: value for name, value in request.usage().items() if name != "output"}
        self._emit({"t": "accepted", "rid": request.rid, **usage, "resume_at": request.resume_at})

    def progress(self, request: Request) -> None:
        """How far its prefill is; nothing once it decodes."""
        if not request.output_tokens:
            self._emit({"t": "progress", "rid": request.rid, "done": request.computed, "total": request.prompt_tokens})

    def preempted(self, request: Request) -> None:
        self._emit({"t": "event", "kind": "preempted", "rid": request.rid})

    def token(self, request: Request, chosen: Sampled) -> None:
        """The newest token of its output."""
        logprobs = None
        if request.submit.sampling.logprobs >= 0:
            logprobs = [[chosen.token, chosen.logprob, [list(pair) for pair in chosen.top]]]
        self._emit({"t": "tokens", "rid": request.rid, "ids": [chosen.token], "logprobs": logprobs})

    def done(self, request: Request, reason: str, stop_id: int | None) -> None:
        hits, misses = self._expert_counts()
        self._emit(
            {
                "t": "done",
                "rid": request.rid,
                "reason": reason,
                "stop_id": stop_id,
                "timings": request.times.summary(),
                "usage": request.usage(),
                "experts": {"hits": hits - request.experts_before[0], "misses": misses - request.experts_before[1]},
            }
        )

    def error(self, rid: str, error: FtError) -> None:
        self._emit({"t": "error", "rid": rid, "code": error.code, "message": error.message, "hint": error.hint})
