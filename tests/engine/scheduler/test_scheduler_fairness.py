"""Whose turn it is when not all can run, and what a warm session notices of a cold prefill."""

from itertools import pairwise

import pytest

from engine.protocol import Submit
from engine.scheduler.admission import LENGTH_S, OTHERS_MOST_S, WaitingLine
from engine.scheduler.batching import MIN_BESIDE_TOKENS, share
from engine.scheduler.request import Request, Times

both = pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])


def asked(seq, tokens=100, arrived=0.0, session="", priority="main"):
    made = Request(Submit(f"r{seq}", [1] * tokens, 1, session=session, priority=priority), seq, Times(arrived))
    made.expected = tokens
    return made


def turns(waiting, running=(), tokens_per_s=100.0):
    line = WaitingLine()
    for request in waiting:
        line.add(request)
    return [r.seq for r in line.in_turn(running, tokens_per_s)]


def test_short_before_long_but_not_for_ever():
    long, short = asked(0, 5000), asked(1, 100, arrived=1)
    assert turns([long, short]) == [1, 0]
    assert turns([long, short], tokens_per_s=None) == [0, 1], "nothing was measured: who came first"
    for n in (100_000, 250_000):
        late = asked(1, 10, arrived=LENGTH_S + 1)
        assert turns([asked(0, n), late]) == [0, 1], "no prompt is so long that everybody overtakes it"


def test_a_session_with_many_requests_leaves_room_for_others():
    running = [asked(n, session="s-a/x") for n in range(8)]
    more, other = asked(8, session="s-a/y", arrived=1), asked(9, session="s-b", arrived=10)
    assert turns([more, other], running) == [9, 8]
    much_later = asked(9, session="s-b", arrived=2 + OTHERS_MOST_S)
    assert turns([more, much_later], running) == [8, 9], "nor is it shut out"
    unnamed = [asked(n) for n in range(8)]
    assert turns([asked(8, arrived=1), other], unnamed) == [8, 9], "who names no session shares none"


def test_people_before_side_requests_before_guesses():
    line = [asked(0, 10, priority="background"), asked(1, 10, priority="side"), asked(2, 9000, arrived=99)]
    assert turns(line) == [2, 1, 0]


def test_a_sent_back_request_keeps_its_place():
    first, later = asked(0, 100), asked(1, 100, arrived=1)
    line = WaitingLine()
    line.add(later)
    line.add(first)
    assert [r.seq for r in line.in_turn([], 100.0)] == [0, 1]


def test_who_ends_a_prefill_is_not_drawn_out_by_the_others():
    cold, warm, warmer = asked(0, 100_000), asked(1, 100), asked(2, 40)
    assert share([cold, warm], 512) == [(cold, 100), (warm, 100)]
    assert share([cold, warm, warmer], 512) == [(cold, 140), (warm, 100), (warmer, 40)]
    assert share([cold, warmer], 512) == [(cold, MIN_BESIDE_TOKENS), (warmer, 40)]
    side = asked(3, 5000, priority="side")
    assert share([side, warm], 512) == [(warm, 100), (side, 100)]
    assert share([cold], 512) == [(cold, 512)]


@both
def test_eight_places_and_twenty_subagents_leave_one_session_served_soon(bench, hybrid):
    clock = 0.0
    b = bench(hybrid, pages=2000, max_running=4, checkpoints=40, chunk_tokens=32, clock=lambda: clock)
    swarm = [b.submit([1, 2, 3, n % 5, n // 5] * 8, max_tokens=6, session=f"s-swarm/{n}") for n in range(20)]
    for _ in range(3):
        b.scheduler.step()
    clock += 1
    alone = b.submit([4] * 40, max_tokens=6, session="s-alone")
    b.drain()
    ended = [m["rid"] for m in b.emitted if m["t"] == "done"]
    assert ended.index(alone) < 8, "it takes one of the next places, not the twenty-first"
    for rid in [*swarm, alone]:
        b.check_output(rid)
    b.check()


class Machine:
    """Time that passes with the tokens computed: `tokens_per_s` of prefill, `decode_s` for each step."""

    def __init__(self, tokens_per_s, decode_s):
        self.now = 0.0
        self._rates = tokens_per_s, decode_s

    def runs(self, bench):
        self._step, bench.runner.step = bench.runner.step, self.step
        return bench

    def step(self, slices, aborted):
        tokens = sum(len(s.tokens) for s in slices)
        self.now += self._rates[1] + tokens / self._rates[0]
        return self._step(slices, aborted)


@pytest.mark.parametrize("tokens_per_s", [2000, 100])
def test_case_30_a_warm_session_beside_a_cold_prefill_of_100k(bench, tokens_per_s):
    """Every turn of the warm session gets its first token within seconds although 100,000 cold tokens are being computed."""
    machine = Machine(tokens_per_s, 0.02)
    b = machine.runs(bench(pages=27_000, max_running=8, chunk_tokens=512, clock=lambda: machine.now))
    warm = [1, 2, 3, 4] * 500
    reply, _ = b.ask(warm, session="s-warm")
    b.runner._row, b.runner.copy_page, forced = quick(b.runner), lambda *page: None, [1, 2, 3]
    cold = b.submit([3, 1] * 50_000, max_tokens=3, session="s-cold", forced=[1, 1, 1])
    began, waits = machine.now, []
    for turn in range(12):
        warm = [*warm, *reply, *[turn % 5, 2] * 50]
        rid = b.submit(warm, max_tokens=3, session="s-warm", forced=forced)
        while not b.of(rid, "done"):
            assert b.scheduler.step()
        done, reply = b.done(rid), b.output(rid)
        waits.append(done["timings"]["first_token_s"])
        assert done["usage"]["new"] + done["usage"]["replayed"] <= 110, "it is warm"
        assert not b.of(cold, "done")
        for _ in range(3):
            b.scheduler.step()  # what the agent does between its turns
    # At worst the rest of a chunk that began before it came, then its own tokens beside as many of the other's.
    assert max(waits) <= 512 / tokens_per_s + 2 * 110 / tokens_per_s + 0.2, waits
    done = [m["done"] for m in b.of(cold, "progress")]
    assert all(later >= earlier for earlier, later in pairwise(done)) and done[-1] > 12 * 512, "the cold one goes on"
    b.drain()
    total = machine.now - began
    assert b.done(cold)["usage"]["prompt"] == 100_000
    assert total <= 1.1 * (100_000 + 12 * 110) / tokens_per_s + 0.02 * b.runner.steps, "and loses nothing but its share"


def quick(runner):
    """Rows that only count: hashing 100,000 tokens takes longer than the test may."""
    from engine.scheduler.step import Sampled

    def row(s, dropped):
        runner.computed_tokens += len(s.tokens)
        return None if s.sample is None else Sampled(s.seq, s.sample.forced, -1.0, [])

    return row
