"""Work done ahead: prompts that are likely to come, computed while nobody waits. What bounds it and what makes it moot.

A background request runs only while nothing else does, on pages that nobody needs, and is dropped when its line moves on.
What it computed lies in the cache under `Marks` until a real request takes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from engine.cache.node import common_tokens
from engine.cache.radix import RadixCache
from engine.memory.pools import PagePool
from engine.protocol import Submit
from engine.scheduler.request import Request

PER_LINE = 2  # predictions of one line that may wait, the most probable first
IN_ALL = 16
KV_SHARE = 2  # of the pages that nobody needs, background work may take 1/2


def displaced(submit: Submit, requests: Iterable[Request]) -> list[Request]:
    """The guesses among `requests` that make way when `submit` comes.

    A main request of a line ends all that was guessed about it; so does a background one that supersedes. Otherwise the
    oldest go when there are too many.
    """
    waiting = [r for r in requests if r.ahead]
    same = [r for r in waiting if r.submit.session == submit.session]
    if submit.priority == "main":
        return same if submit.session else []
    if submit.max_tokens:
        return []
    dropped = same if submit.supersedes else same[: max(0, len(same) - PER_LINE + 1)]
    if len(waiting) - len(dropped) >= IN_ALL:
        return [*dropped, next(r for r in waiting if r not in dropped)]
    return dropped


def reach(request: Request, cache: RadixCache, pool: PagePool) -> int:
    """Up to which token a background request may compute, with the pages that nobody needs now."""
    cached = cache.match(request.tokens).resume_at // cache.page_tokens
    allowed = (pool.free + cache.idle_pages()) // KV_SHARE
    return min(len(request.tokens), (cached + allowed) * cache.page_tokens)


def spares(arrival: array[int], request: Request, n: int) -> bool:
    """True when a request with the prompt `arrival` gains more from the `n` tokens that background `request` is computing
    than it loses by waiting for them: it needs at least half of them."""
    common = common_tokens(arrival.tobytes(), request.tokens.tobytes())
    return common - request.computed >= -(-n // 2)
