import random

import pytest

from engine.errors import BadRequest
from engine.protocol import Sampling, Submit
from engine.scheduler.batching import Budget, share
from engine.scheduler.request import Request, Times

both = pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])


def kinds(b, rid):
    return [m["t"] for m in b.emitted if m.get("rid") == rid]


@both
def test_the_next_turn_computes_only_what_is_new(bench, hybrid):
    b = bench(hybrid, pages=100, chunk_tokens=8)
    prompt = [1, 2, 3, 4, 0, 1, 2] * 5
    reply, usage = b.ask(prompt, max_tokens=5)
    nothing_ahead = {"anticipated": 0, "wasted": 0}
    assert usage == {"prompt": 35, "cached": 0, "replayed": 0, "new": 35, "output": 5, "tier": None, **nothing_ahead}
    computed = b.runner.computed_tokens
    follow = prompt + reply + [3, 3, 3]
    _, usage = b.ask(follow, max_tokens=1)
    # The reply's last token was never fed back, so it is new like the three after it.
    assert usage == {"prompt": 43, "cached": 39, "replayed": 0, "new": 4, "output": 1, "tier": "ram", **nothing_ahead}
    assert b.runner.computed_tokens - computed == 4
    _, usage = b.ask(follow, max_tokens=1)
    assert usage["cached"] == 42 and usage["new"] == 1, "the same prompt again computes one token"


def test_an_edit_in_the_middle_resumes_at_the_fork(bench):
    b = bench(pages=100)
    b.ask([1] * 20 + [2] * 20)
    _, usage = b.ask([1] * 20 + [3] * 20)
    assert usage["cached"] == 20 and usage["replayed"] == 0
    h = bench(True, pages=100)
    h.ask([1] * 20 + [2] * 20, points=[(8, "head"), (39, "prompt")])
    _, usage = h.ask([1] * 20 + [3] * 20, points=[(8, "head"), (39, "prompt")])
    assert usage["cached"] == 8 and usage["replayed"] == 12 and usage["new"] == 20
    _, usage = h.ask([1] * 20 + [4] * 20, points=[(8, "head"), (39, "prompt")])
    assert usage["cached"] == 20 and usage["replayed"] == 0, "the fork was undeclared once and remembered"


@both
def test_a_request_with_the_same_prefix_waits_for_its_leader(bench, hybrid):
    b = bench(hybrid, pages=200, max_running=4, chunk_tokens=8, checkpoints=12)
    shared = [1, 2, 3, 4] * 10
    rids = [b.submit([*shared, n, n], points=[(40, "head")]) for n in range(4)]
    b.drain()
    for rid in rids:
        b.check_output(rid)
    assert b.done(rids[0])["usage"]["cached"] == 0
    assert [b.done(rid)["usage"]["cached"] for rid in rids[1:]] == [40] * 3
    assert b.runner.computed_tokens <= 40 + 4 * (2 + 4)


@both
def test_followers_of_a_cancelled_leader_go_on(bench, hybrid):
    b = bench(hybrid, pages=200, chunk_tokens=4)
    first = b.submit([1, 2, 3, 4] * 10)
    second = b.submit([1, 2, 3, 4] * 10 + [1])
    b.scheduler.step()
    assert len(b.scheduler.waiting) == 1
    b.scheduler.cancel(first)
    b.drain()
    b.check_output(second)
    assert b.done(second)["usage"]["cached"] == 4, "what the leader computed is kept"


def test_decodes_never_wait_for_a_whole_prefill(bench):
    b = bench(pages=300, chunk_tokens=8)
    talking = b.submit([1, 2], max_tokens=30)
    b.scheduler.step()
    b.submit([3] * 200, max_tokens=1)
    for _ in range(10):
        before = len(b.output(talking))
        b.scheduler.step()
        assert len(b.output(talking)) == before + 1
    b.drain()


def test_a_short_prompt_is_not_stuck_behind_a_long_one(bench):
    b = bench(pages=300, chunk_tokens=16)
    long = b.submit([1] * 600, max_tokens=1)
    b.scheduler.step()
    short = b.submit([2] * 8, max_tokens=1)
    for _ in range(2):
        b.scheduler.step()
    assert b.of(short, "done") and not b.of(long, "done")
    b.drain()


def prefilling(seq, n, priority="main"):
    return Request(Submit(f"r{seq}", [1] * n, 1, priority=priority), seq, Times(0.0))


def test_the_budget_is_shared_evenly_and_what_is_left_over_moves_on():
    a, b, c = prefilling(0, 100), prefilling(1, 2), prefilling(2, 100)
    assert share([a, b, c], 20) == [(a, 9), (b, 2), (c, 9)]
    side = prefilling(3, 50, "side")
    assert share([side, b], 20) == [(b, 2), (side, 18)]
    assert share([side, a], 20) == [(a, 20)]
    background = prefilling(4, 50, "background")
    assert share([background, b], 20) == [(b, 2)], "background work runs alone"
    assert share([background], 20) == [(background, 20)]


def test_chunks_shrink_beside_a_decode_and_in_work_ahead_to_what_the_measured_rate_allows():
    budget, prefill, ahead = Budget(512), [prefilling(0, 100)], [prefilling(1, 1000, "background")]
    decode = [prefilling(2, 1)]
    decode[0].append(1)
    decode[0].computed = 1
    assert budget.tokens(decode) == budget.tokens(ahead) == 512, "nothing measured yet"
    for _ in range(20):
        budget.measured(400, 1.0)
    assert budget.tokens(prefill) == budget.tokens([*prefill, *ahead]) == 512
    assert 90 <= budget.tokens([*decode, *prefill]) <= 100
    assert 390 <= budget.tokens(ahead) <= 400
    for _ in range(20):
        budget.measured(20, 1.0)
    assert budget.tokens(decode) == 16 and budget.tokens(ahead) == 64


def test_priority_then_arrival(bench):
    b = bench(max_running=1, pages=100)
    rids = [b.submit([n, n, n], 2, f"{p}{n}", priority=p) for n, p in enumerate(["background", "side", "main", "main"])]
    b.drain()
    assert [m["rid"] for m in b.emitted if m["t"] == "done"] == ["main2", "main3", "side1", "background0"]
    for rid in rids:
        b.check_output(rid)


@both
def test_background_work_yields_within_a_layer(bench, hybrid):
    b = bench(hybrid, pages=100, max_running=1, chunk_tokens=8)
    background = b.submit([1] * 40, 2, priority="background")
    b.scheduler.step()
    main = {"t": "submit", "rid": "urgent", "tokens": [2] * 6, "max_tokens": 2, "priority": "main"}
    posts = iter([True])
    b.runner.on_layer = lambda: b.scheduler.post(main) if next(posts, False) else None
    computed = b.runner.computed_tokens
    b.scheduler.step()
    assert b.runner.computed_tokens == computed, "the chunk was dropped"
    b.scheduler.submit(Submit.parse(main))
    b.drain()
    assert [m["rid"] for m in b.emitted if m["t"] == "done"] == ["urgent", background]
    b.check_output(background)
    b.check()


def test_what_does_not_fit_now_waits_instead_of_pushing_others_out(bench):
    b = bench(pages=12, max_running=3, chunk_tokens=8)
    first = b.submit([1] * 32, 6)
    second = b.submit([2] * 32, 6)
    b.scheduler.step()
    assert [r.rid for r in b.scheduler.running] == [first] and len(b.scheduler.waiting) == 1
    b.drain()
    assert not any(m["t"] == "event" for m in b.emitted)
    b.check_output(first)
    b.check_output(second)


def test_background_work_gives_its_pages_to_real_work(bench):
    b = bench(pages=12, max_running=2, chunk_tokens=8)
    background = b.submit([1] * 20, 20, priority="background")
    for _ in range(8):
        b.scheduler.step()
    main = b.submit([2] * 40, 2)
    b.drain()
    assert [m["rid"] for m in b.emitted if m["t"] == "done"] == [main, background]
    b.check_output(main)
    b.check_output(background)


@both
def test_when_pages_run_out_the_youngest_goes_back_and_nobody_fails(bench, hybrid):
    b = bench(hybrid, pages=12, max_running=3, chunk_tokens=16, checkpoints=8)
    rids = [b.submit([n] * 9, max_tokens=20) for n in range(3)]
    b.drain()
    assert any(m["t"] == "event" and m["kind"] == "preempted" for m in b.emitted)
    for rid in rids:
        b.check_output(rid)
        assert len(b.of(rid, "accepted")) == 1
    assert next(m["rid"] for m in b.emitted if m["t"] == "done") == rids[0], "the oldest is never sent back"
    b.check()


@both
def test_a_request_as_large_as_the_window_is_served(bench, hybrid):
    b = bench(hybrid, pages=12)
    prompt = [1, 2, 3, 4] * 14 + [0, 0]
    assert len(prompt) + 2 == b.window
    b.ask(prompt, max_tokens=2)
    _, usage = b.ask(prompt, max_tokens=2)
    # No page is left to copy the partial one to, so the request starts lower.
    assert usage["cached"] == (0 if hybrid else 56)
    b.check()


def test_what_can_never_fit_is_refused_at_once(bench):
    b = bench(window=40)
    for tokens, max_tokens, code in (
        ([1] * 41, 1, "FT-E0413"),
        ([1] * 38, 3, "FT-E0414"),
        ([], 1, "FT-E0400"),
        ([1], 0, "FT-E0400"),
        ([99], 1, "FT-E0400"),
        ([-1], 1, "FT-E0400"),
    ):
        rid = b.submit(tokens, max_tokens)
        (error,) = b.of(rid, "error")
        assert error["code"].startswith(code) and error["message"] and error["hint"]
    rid = b.submit([1], points=[(1, "colour")])
    assert b.of(rid, "error")[0]["code"].startswith("FT-E0400")
    assert not b.scheduler.step() and b.runner.steps == 0
    _, usage = b.ask([1] * 37, max_tokens=3)
    assert usage["output"] == 3


def test_a_second_request_of_one_id_is_refused_and_the_first_goes_on(bench):
    b = bench()
    rid = b.submit([1, 2, 3])
    b.scheduler.submit(b.submits[rid])
    assert len(b.of(rid, "error")) == 1
    b.drain()
    b.check_output(rid)


@both
def test_two_hundred_cancellations_leave_nothing_behind(bench, hybrid):
    b = bench(hybrid, pages=60, max_running=4, chunk_tokens=8, checkpoints=5)
    rng = random.Random(7)
    for n in range(200):
        rid = b.submit([rng.randrange(5) for _ in range(rng.randrange(1, 60))], rng.randrange(1, 20))
        for _ in range(rng.randrange(4)):
            b.scheduler.step()
        if n % 2:
            b.scheduler.cancel(rid)
        else:
            b.scheduler.post({"t": "cancel", "rid": rid})
            b.scheduler.step()
            b.scheduler.cancel(rid)
        b.check()
    b.drain()
    assert b.scheduler.running == [] and len(b.scheduler.waiting) == 0
    assert b.pools.pages.used == b.cache.pages
    b.cache.evict(1000)
    assert b.pools.pages.used == 0 and b.pools.arena.map()["kv"] == 1  # the sentinel's slab
    b.ask([1, 2, 3])


@both
def test_a_hang_up_stops_within_a_layer_and_keeps_what_was_computed(bench, hybrid):
    b = bench(hybrid, pages=100, chunk_tokens=8)
    rid = b.submit([1, 2, 3, 4] * 10)
    b.scheduler.step()
    b.scheduler.step()
    layers = iter(range(100))
    b.runner.on_layer = lambda: b.scheduler.post({"t": "cancel", "rid": rid}) if next(layers) == 1 else None
    computed = b.runner.computed_tokens
    b.scheduler.step()
    b.runner.on_layer = lambda: None
    assert b.runner.computed_tokens == computed, "its rows left the batch"
    assert b.done(rid)["reason"] == "cancelled" and b.scheduler.running == []
    again = b.submit([1, 2, 3, 4] * 10)
    b.drain()
    b.check_output(again)
    # The recurrent state after both chunks was lost in the broken step; a copy of it had been kept.
    assert b.done(again)["usage"]["cached"] == 16


def test_a_cancelled_request_between_steps_keeps_its_state(bench):
    b = bench(True, pages=100, chunk_tokens=8)
    rid = b.submit([1, 2, 3, 4] * 10)
    b.scheduler.step()
    b.scheduler.step()
    b.scheduler.cancel(rid)
    _, usage = b.ask([1, 2, 3, 4] * 10)
    assert usage["cached"] == 16


@both
def test_a_failed_step_is_answered_and_the_next_request_served(bench, hybrid):
    b = bench(hybrid, pages=100)
    lost = [b.submit([1, 2, 3]), b.submit([4, 4])]
    b.runner.fail_next = MemoryError("no memory for 9 bytes")
    b.scheduler.step()
    for rid in lost:
        (error,) = b.of(rid, "error")
        assert error["code"].startswith("FT-E0501") and "no memory for 9 bytes" in error["message"]
    b.check()
    b.ask([1, 2, 3])


def test_stop_ids_length_and_forced_tokens(bench):
    b = bench(pages=100, vocab=3)
    stopped = b.submit([1, 2], max_tokens=50, stop_ids=[0, 1, 2])
    forced = b.submit([1, 2], max_tokens=10, forced=[0, 2, 0, 1], stop_ids=[0, 1])
    cut = b.submit([1, 2], max_tokens=2, forced=[0, 2, 0, 1])
    nothing = b.submit([1, 2, 1], max_tokens=2, forced=[])
    b.drain()
    assert b.output(stopped) == [] and b.done(stopped)["stop_id"] in (0, 1, 2)
    assert b.done(stopped)["usage"]["output"] == 1 and b.done(stopped)["reason"] == "stop"
    # A stop id inside a script is text; at its end it is the end.
    assert b.output(forced) == [0, 2, 0] and b.done(forced)["stop_id"] == 1
    assert b.output(cut) == [0, 2] and b.done(cut)["reason"] == "length"
    assert b.output(nothing) == [] and b.done(nothing)["reason"] == "stop" and b.done(nothing)["usage"]["output"] == 0


class OnlyTwo:
    """Allows token 2, three times."""

    def __init__(self, grammar):
        if grammar == "broken":
            raise BadRequest("The grammar cannot be compiled.", "Simplify it.")
        self.taken = []

    @property
    def done(self):
        return len(self.taken) == 3

    def mask(self, left):
        assert not self.done
        return bytes([0b100])

    def advance(self, token):
        self.taken.append(token)


def test_a_grammar_decides_which_tokens_may_come_and_when_it_ends(bench):
    b = bench(matcher=OnlyTwo)
    rid = b.submit([1, 2], max_tokens=10, grammar="g")
    short = b.submit([1, 1], max_tokens=2, grammar="g")
    broken = b.submit([1, 3], grammar="broken")
    free = b.submit([1, 4], max_tokens=3)
    b.drain()
    assert b.output(rid) == [2, 2, 2] and b.done(rid)["reason"] == "stop"
    assert b.output(short) == [2, 2] and b.done(short)["reason"] == "length"
    assert b.of(broken, "error")[0]["code"].startswith("FT-E0400")
    b.check_output(free)
    plain = bench()
    refused = plain.submit([1], grammar="g")
    assert plain.of(refused, "error")[0]["code"].startswith("FT-E0520")


def test_messages_come_in_order_and_add_up(bench):
    b = bench(True, pages=100, chunk_tokens=8, expert_counts=lambda: (b.runner.computed_tokens, 7))
    rid = b.submit([1, 2, 3, 4, 0] * 4, max_tokens=3)
    b.drain()
    assert kinds(b, rid) == ["accepted", "progress", "progress", "progress", "tokens", "tokens", "tokens", "done"]
    assert [m["done"] for m in b.of(rid, "progress")] == [8, 16, 20]
    done = b.done(rid)
    timings = done["timings"]
    assert all(timings[k] >= 0 for k in ("queue_s", "restore_s", "prefill_s", "first_token_s", "decode_s"))
    assert timings["first_token_s"] >= timings["prefill_s"]
    assert done["experts"] == {"hits": 22, "misses": 0}
    waiting = b.submit([1])
    b.scheduler.cancel(waiting)
    assert b.done(waiting)["timings"]["prefill_s"] is None and b.done(waiting)["usage"]["output"] == 0
    assert kinds(b, waiting) == ["done"]


def test_logprobs_travel_only_when_asked_for(bench):
    b = bench()
    plain = b.submit([1, 2], max_tokens=1)
    asked = b.submit([1, 3], max_tokens=1, sampling=Sampling(logprobs=1))
    b.drain()
    assert b.of(plain, "tokens")[0]["logprobs"] is None
    (token,) = b.output(asked)
    assert b.of(asked, "tokens")[0]["logprobs"] == [[token, -1.0, [[token, -1.0]]]]


def test_parallel_sessions_with_one_head_answer_as_if_alone(bench):
    """Four sessions, a shared prefix, each with its own line over several turns, all at once."""
    b = bench(True, pages=300, max_running=4, chunk_tokens=16, checkpoints=20)
    head = [1, 2, 3, 4, 0] * 8
    lines = [[*head, n] for n in range(4)]
    for _ in range(4):
        rids = [b.submit(line, 3, session=f"s{n}", points=[(40, "head")]) for n, line in enumerate(lines)]
        b.drain()
        for n, rid in enumerate(rids):
            b.check_output(rid)
            lines[n] = lines[n] + b.output(rid) + [n, n]
    usages = [b.done(rid)["usage"] for rid in rids]
    assert all(u["replayed"] == 0 and u["new"] <= 3 for u in usages)
    b.check()
