"""What one step computes: every running decode, and prefill chunks that share a token budget."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler.request import BACKGROUND, Request
from engine.scheduler.step import SampleSpec, Slice

MIXED_STEP_S = 0.25  # what a prefill may add to the step of a running decode
MIN_MIXED_TOKENS = 16
AHEAD_STEP_S = 1.0  # a step of work ahead, which is lost when real work that has no use for it arrives
MIN_AHEAD_TOKENS = 64  # fewer rows read every weight for too little
MIN_BESIDE_TOKENS = 64  # what the others get in a step that ends somebody's prefill


class Budget:
    """Prefill tokens of one step: the chunk size, or what fits `MIXED_STEP_S` while somebody is decoding, or
    `AHEAD_STEP_S` when all of it is work ahead."""

    def __init__(self, chunk_tokens: int) -> None:
        self.chunk_tokens = chunk_tokens
        self._tokens_per_s: float | None = None

    def tokens(self, running: Sequence[Request]) -> int:
        """For the next step of what is running."""
        if self._tokens_per_s is None:
            return self.chunk_tokens
        if any(r.decoding for r in running):
            least, step_s = MIN_MIXED_TOKENS, MIXED_STEP_S
        elif all(r.rank == BACKGROUND for r in running):
            least, step_s = MIN_AHEAD_TOKENS, AHEAD_STEP_S
        else:
            return self.chunk_tokens
        return min(self.chunk_tokens, max(least, int(self._tokens_per_s * step_s)))

    @property
    def tokens_per_s(self) -> float | None:
        """How fast prefill is; None: nothing was measured yet."""
        return self._tokens_per_s

    def measured(self, prefill_tokens: int, step_s: float) -> None:
        """A step with `prefill_tokens` took `step_s`; the estimate follows within a few steps."""
        if prefill_tokens < MIN_MIXED_TOKENS or step_s <= 0:
            return
        rate = prefill_tokens / step_s
        self._tokens_per_s = rate if self._tokens_per_s is None else 0.7 * self._tokens_per_s + 0.3 * rate


def share(running: Sequence[Request], budget: int) -> list[tuple[Request, int]]:
    """(request, tokens to compute) for one step, in priority order.

    Decodes get their one token beside the budget. Prefills of the best rank present share it evenly, so that a short
    suffix is not stuck behind a long prompt; what one leaves over goes to the others, then to the next rank. But a step that
    ends a prefill is not drawn out by others: together they get no more than those that end. Background work runs only when
    it is alone.
    """
    ordered = sorted(running, key=lambda r: r.order)
    if any(r.rank < BACKGROUND for r in ordered):
        ordered = [r for r in ordered if r.rank < BACKGROUND]
    given = {r.seq: 1 for r in ordered if r.decoding}
    ending = 0
    for rank in sorted({r.rank for r in ordered}):
        group = sorted((r for r in ordered if r.rank == rank and not r.decoding), key=lambda r: (r.remaining, r.seq))
        for i, request in enumerate(group):
            tokens = min(request.remaining, -(-budget // (len(group) - i)))
            if tokens == request.remaining:
                ending += tokens
            elif ending:
                budget, ending = min(budget, max(MIN_BESIDE_TOKENS, ending)), 0
                tokens = -(-budget // (len(group) - i))
            if tokens > 0:
                given[request.seq] = tokens
                budget -= tokens
    return [(r, given[r.seq]) for r in ordered if r.seq in given]


def make_slice(request: Request, tokens: int, page_tokens: int, snapshots: list[tuple[int, int]]) -> Slice:
    """The next `tokens` of `request`, with a sample when they are its last ones."""
    end = request.computed + tokens
    made = Slice(
        seq=request.seq,
        tokens=request.history[request.computed : end],
        start=request.computed,
        pages=request.pages[: -(-end // page_tokens)],
        state=request.state,
        snapshots=snapshots,
    )
    if end == len(request.tokens) and not request.ahead:
        made.sample = _sample(request)
    return made


def _sample(request: Request) -> SampleSpec | None:
    index, forced = request.output_tokens, request.submit.forced
    if forced is not None:
        if index >= len(forced):
            return None
        return SampleSpec(request.submit.sampling, request.history, forced=forced[index], index=index)
    mask = request.matcher.mask(request.submit.max_tokens - index) if request.matcher is not None else None
    return SampleSpec(request.submit.sampling, request.history, mask=mask, index=index)
