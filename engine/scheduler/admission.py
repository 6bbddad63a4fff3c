"""Who may start: what fits is admitted, what can never fit is refused, the rest waits in a fair order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from engine.cache.claims import WEIGHTS
from engine.cache.node import common_tokens
from engine.cache.radix import RadixCache
from engine.errors import BadRequest, FtError, OutputTooLong, PromptTooLong
from engine.memory.pools import PagePool
from engine.protocol import Submit
from engine.scheduler.request import BACKGROUND, RANKS, Request

LENGTH_S = 60.0  # a prompt of any length is overtaken by what came at most this much later
OTHERS_S = 15.0  # and for each request of its session that is served before it, so much more,
OTHERS_MOST_S = 60.0  # up to this


class WaitingLine:
    """Requests by priority, then by when they came. A long prompt counts as coming later by the time it is expected to take,
    one of several of a session by some time for each that is served before it; both are bounded, so that everybody's turn comes.
    A request that was sent back keeps its old place.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """In no particular order."""
        return iter(list(self._requests))

    def in_turn(self, running: Iterable[Request], tokens_per_s: float | None) -> list[Request]:
        """Whose turn it is, beside those `running`, with prefill at `tokens_per_s` (None: not known, lengths do not count)."""
        ahead = Counter(r.session for r in running if r.rank < BACKGROUND)

        def came(r: Request) -> tuple[int, float, int]:
            length_s = min(LENGTH_S, r.expected / tokens_per_s) if tokens_per_s else 0.0
            return r.rank, r.times.arrived + length_s, r.seq

        turns = {}
        for request in sorted(self._requests, key=came):
            rank, at_s, seq = came(request)
            others_s = min(OTHERS_MOST_S, OTHERS_S * ahead[request.session]) if request.session else 0.0
            turns[request] = rank, at_s + others_s, seq
            ahead[request.session] += 1
        return sorted(turns, key=turns.__getitem__)

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def remove(self, request: Request) -> None:
        self._requests.remove(request)


def refusal(submit: Submit, window_tokens: int, vocab_size: int) -> FtError | None:
    """Why this request can never be served, or None."""
    prompt = len(submit.tokens)
    if not prompt:
        return BadRequest("The prompt is empty.", "Send at least one token.")
    if submit.max_tokens < (0 if submit.priority == "background" else 1):
        return BadRequest(f"max_tokens is {submit.max_tokens}.", "Ask for 1 or more.")
    if submit.priority not in RANKS:
        return BadRequest(f"priority {submit.priority!r} is not known.", f"Use one of {', '.join(RANKS)}.")
    unknown = next((point.kind for point in submit.edit_points if point.kind not in WEIGHTS), None)
    if unknown is not None:
        return BadRequest(f"edit point kind {unknown!r} is not known.", f"Use one of {', '.join(WEIGHTS)}.")
    if any(point.quota < 0 for point in submit.edit_points):
        return BadRequest("an edit point has a negative quota.", "Leave it out, or give 0 or more.")
    for ids in (submit.tokens, submit.forced or ()):
        if ids and (min(ids) < 0 or max(ids) >= vocab_size):
            return BadRequest(f"a token id is outside [0, {vocab_size}).", "Tokenise with this model's tokenizer.")
    if prompt > window_tokens:
        return PromptTooLong(prompt, window_tokens)
    if prompt + submit.max_tokens > window_tokens:
        return OutputTooLong(prompt, submit.max_tokens, window_tokens)
    return None


def missing_pages(request: Request, running: Sequence[Request], cache: RadixCache, pool: PagePool) -> int:
    """How many pages are too few for all running requests, grown to the end of what they prefill plus one page each, and
    this one. Cached pages that nobody runs on count as free."""

    def grown(r: Request) -> int:
        return len(r.tokens) // cache.page_tokens + 1

    match = cache.match(request.tokens)
    shared = match.pages[: match.resume_at // cache.page_tokens]
    held = set(shared).union(*(r.pages for r in running))
    promised = sum(max(0, grown(r) + 1 - len(r.pages)) for r in running)
    return max(0, len(held) + promised + grown(request) - len(shared) - pool.capacity)


def leader(request: Request, running: Iterable[Request], cache: RadixCache) -> tuple[Request, int] | None:
    """(a running request that is about to cache more of this prompt than is cached now, how far it must get for that).

    Only a gain of at least a page counts: waiting for it is cheaper than computing the same prefix twice.
    """
    match = cache.match(request.tokens)
    data, limit = request.tokens.tobytes(), len(request.tokens) - 1
    for other in running:
        if other.decoding:
            continue
        common = min(common_tokens(data, other.tokens.tobytes()), limit)
        if cache.hybrid:
            common = max((position for position, _ in other.planned if position <= common), default=0)
        if common > other.computed and common - match.resume_at >= cache.page_tokens:
            return other, common
    return None
