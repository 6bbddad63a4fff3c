"""Which replica gets a prompt: the one that was sent most of it, else the least loaded."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from engine.front.metrics import Metrics
from engine.front.records import EventBus
from engine.upstream.affinity import BLOCK_TOKENS, Seen, blocks
from engine.upstream.failures import UpstreamBusy, UpstreamGone
from engine.upstream.replica import Replica
from engine.upstream.upstream import Upstream


def test_common_blocks_are_the_common_prefix() -> None:
    chance = random.Random(3)
    for _ in range(50):
        one = [chance.randrange(50000) for _ in range(chance.randrange(1, 1000))]
        keep = chance.randrange(len(one) + 1)
        other = one[:keep] + [chance.randrange(50000, 60000) for _ in range(chance.randrange(0, 300))]
        seen = Seen()
        seen.add(blocks(one))
        assert seen.common(blocks(other)) == min(keep, len(one) // BLOCK_TOKENS * BLOCK_TOKENS) // BLOCK_TOKENS


def test_what_is_forgotten_first_is_the_end_of_what_was_used_longest_ago() -> None:
    seen, one, other = Seen(limit=8), blocks(range(6 * BLOCK_TOKENS)), blocks(range(9, 9 + 6 * BLOCK_TOKENS))
    seen.add(one)
    seen.add(other)
    assert (seen.common(one), seen.common(other)) == (2, 6)


@pytest.fixture
def upstream() -> Upstream:
    language: Any = None
    made = Upstream([f"http://127.0.0.1:{port}" for port in (1, 2, 3)], [""] * 3, language, EventBus(), Metrics(), 1024)
    for replica in made.replicas:
        replica.live = True
    return made


def chosen(upstream: Upstream, tokens: list[int], tried: list[Replica] | None = None) -> int:
    return upstream.replicas.index(upstream._choose(tokens, tried or []))


def test_the_longest_prefix_wins_over_load_and_load_over_order(upstream: Upstream) -> None:
    first, second, third = upstream.replicas
    prompt = list(range(10 * BLOCK_TOKENS))
    second.seen.add(blocks(prompt[: 3 * BLOCK_TOKENS]))
    third.seen.add(blocks(prompt[: 7 * BLOCK_TOKENS]))
    third.running = 5
    assert chosen(upstream, prompt) == 2
    assert chosen(upstream, prompt, [third]) == 1
    first.running = 1
    assert chosen(upstream, [9] * 500) == 1
    second.live = False
    assert chosen(upstream, [9] * 500) == 0


def test_a_busy_replica_is_passed_over_until_all_are(upstream: Upstream) -> None:
    first, second, third = upstream.replicas
    loop_now = asyncio.new_event_loop().time()  # the same clock as time.monotonic
    first._busy_until = loop_now + 30
    assert chosen(upstream, [1]) == 1
    second._busy_until, third._busy_until = loop_now + 20, loop_now + 40
    with pytest.raises(UpstreamBusy) as caught:
        upstream._choose([1], [])
    assert 18 <= caught.value.retry_after_s <= 20
    for replica in upstream.replicas:
        replica.lost("it was unplugged")
    with pytest.raises(UpstreamGone, match="it was unplugged"):
        upstream._choose([1], [])
