"""Work done ahead: what it gains, what bounds it, what ends it."""

import pytest

from engine.protocol import Submit

both = pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])


def guess(b, tokens, rid="g", **fields):
    return b.submit(tokens, 0, rid, priority="background", **{"session": "s", "supersedes": True, **fields})


def ahead(b):
    marks = b.cache.marks
    return marks.computed, marks.used, marks.wasted, marks.pending


def arriving(b, submit, layer=0):
    """Post a request between two layers of the next step, run that step, then hand it in."""
    calls = iter(range(100))
    b.submits[submit.rid] = submit
    b.runner.on_layer = lambda: b.scheduler.post(submit.message()) if next(calls) == layer else None
    b.scheduler.step()
    b.runner.on_layer = lambda: None
    b.scheduler.submit(submit)


@both
def test_a_guess_ends_at_its_last_token_and_the_real_request_goes_on_there(bench, hybrid):
    b = bench(hybrid, pages=200, chunk_tokens=8)
    known = [1, 2, 3, 4, 0] * 9 + [1]
    rid = guess(b, known)
    b.drain()
    done = b.done(rid)
    assert done["reason"] == "stop" and not b.output(rid) and done["usage"]["output"] == 0
    assert done["usage"]["new"] == 46 and done["usage"]["anticipated"] == 0
    computed = b.runner.computed_tokens
    _, usage = b.ask([*known, 2, 2], session="s", max_tokens=1)
    assert usage["cached"] == usage["anticipated"] == 46 and usage["new"] == 2 and usage["wasted"] == 0
    assert b.runner.computed_tokens - computed == 2
    assert ahead(b) == (46, 46, 0, 0)
    again = guess(b, known, "again")
    b.drain()
    assert b.done(again)["usage"]["cached"] == 46 and ahead(b) == (46, 46, 0, 0), "nothing is computed twice"


@both
def test_only_what_background_work_computed_counts_and_only_once(bench, hybrid):
    b = bench(hybrid, pages=200)
    prompt = [1, 2, 3, 4] * 5
    reply, _ = b.ask(prompt, session="s")
    known = [*prompt, *reply, 3, 3, 3]
    guess(b, known)
    b.drain()
    assert ahead(b) == (4, 0, 0, 4), "the last token of the reply and three more"
    _, usage = b.ask([*known, 1], session="s")
    assert (usage["cached"], usage["anticipated"], usage["tier"]) == (27, 4, "ram")
    _, usage = b.ask([*known, 1, 2], session="s")
    assert usage["anticipated"] == 0


@both
def test_a_wrong_guess_is_waste_when_the_line_moves_on(bench, hybrid):
    b = bench(hybrid, pages=200)
    prompt = [1, 2, 3, 4] * 5
    b.ask(prompt, session="s")
    guess(b, [*prompt, 0, 0, 0, 0, 0, 0])
    b.drain()
    _, usage = b.ask([*prompt, 2, 2, 2], session="other")
    assert usage["wasted"] == 0 and b.cache.marks.pending == 6 - usage["anticipated"]
    pending = b.cache.marks.pending
    _, usage = b.ask([*prompt, 4, 4, 4], session="s")
    assert usage["wasted"] == pending > 0 and b.cache.marks.pending == 0


def test_what_is_evicted_unused_is_waste(bench):
    b = bench(pages=60)
    guess(b, [1, 2] * 20)
    b.drain()
    b.cache.evict(1000)
    assert ahead(b) == (40, 0, 40, 0)


@both
def test_a_newer_guess_ends_the_older_ones_of_its_line(bench, hybrid):
    b = bench(hybrid, pages=200, chunk_tokens=4)
    first = guess(b, [1] * 30, "a")
    b.scheduler.step()
    second = guess(b, [1] * 8 + [2] * 8, "b", supersedes=False)
    other = guess(b, [3] * 8, "c", session="t")
    third = guess(b, [1] * 8 + [3] * 8, "d")
    b.drain()
    assert [b.done(r)["reason"] for r in (first, second, other, third)] == ["cancelled", "cancelled", "stop", "stop"]
    rids = [guess(b, [4, n] * 5, f"e{n}", supersedes=False) for n in range(4)]
    assert [bool(b.of(r, "done")) for r in rids] == [True, True, False, False], "two of a line may wait"
    b.drain()
    b.check()


@both
def test_a_guess_that_ends_early_says_what_it_computed(bench, hybrid):
    b = bench(hybrid, pages=300, chunk_tokens=16)
    rid = guess(b, [1, 2, 3, 4, 0] * 20)
    for _ in range(2):
        b.scheduler.step()
    waiting = guess(b, [2] * 50, "other", session="t")
    b.scheduler.cancel(rid)
    b.scheduler.cancel(waiting)
    assert (b.done(rid)["usage"]["new"], b.done(waiting)["usage"]["new"]) == (32, 0)


def test_there_is_a_limit_over_all_lines(bench):
    b = bench(pages=200)
    rids = [guess(b, [n % 5] * 4, f"x{n}", session=f"line{n}") for n in range(20)]
    assert sum(bool(b.of(r, "done")) for r in rids) == 4
    b.drain()


@both
def test_a_main_request_takes_over_what_is_being_computed_for_it(bench, hybrid):
    b = bench(hybrid, pages=300, chunk_tokens=16)
    known = [1, 2, 3, 4, 0] * 20
    rid = guess(b, known)
    b.scheduler.step()
    main = Submit("m", [*known, 2], 2, session="s")
    arriving(b, main)
    assert b.runner.computed_tokens == 32, "it needs the chunk that was under way"
    assert b.done(rid)["reason"] == "cancelled"
    b.drain()
    b.check_output("m")
    usage = b.done("m")["usage"]
    assert usage["cached"] == usage["anticipated"] == 32 and b.runner.computed_tokens == 101 + 1
    b.check()


@both
def test_a_broken_off_guess_keeps_the_chunks_before(bench, hybrid):
    b = bench(hybrid, pages=300, chunk_tokens=16)
    known = [1, 2, 3, 4, 0] * 20
    rid = guess(b, known)
    for _ in range(3):
        b.scheduler.step()
    arriving(b, Submit("m", [4, 4, 4], 2, session="other"))
    assert b.runner.computed_tokens == 48 and not b.of(rid, "done"), "the chunk under way is dropped, the guess waits"
    b.drain()
    b.check_output("m")
    assert b.done(rid)["reason"] == "stop" and b.runner.computed_tokens == 100 + 3 + 1, "it went on where it was"
    b.check()


@both
def test_a_real_request_waits_for_a_layer_at_most(bench, hybrid):
    b = bench(hybrid, pages=300, chunk_tokens=64)
    talking = b.submit([1, 2], max_tokens=30)
    b.scheduler.step()
    guess(b, [3] * 200)
    for _ in range(29):
        before = b.runner.steps, len(b.output(talking))
        b.scheduler.step()
        assert (b.runner.steps, len(b.output(talking))) == (before[0] + 1, before[1] + 1)
        assert b.runner.batch_sizes[-1] == [1], "nothing rides along with a decode"
    b.drain()


def test_a_post_before_admission_is_not_forgotten(bench):
    """The request is in the inbox already when the step begins, and the loop has not handled it yet."""
    b = bench(pages=300, chunk_tokens=64)
    guess(b, [3] * 200)
    b.scheduler.step()
    b.scheduler.post(Submit("m", [1, 1, 1], 2).message())
    computed = b.runner.computed_tokens
    b.scheduler.step()
    assert b.runner.computed_tokens == computed


@both
def test_guesses_take_no_page_that_a_main_request_uses(bench, hybrid):
    b = bench(hybrid, pages=40, checkpoints=8)
    main = [1, 2, 3, 4] * 25
    reply, _ = b.ask(main, session="s", points=[(40, "head")])
    for n in range(6):
        rid = guess(b, [n % 5, 0, n // 5] * 30, f"g{n}", session=f"t{n}")
        b.drain()
        assert b.done(rid)["reason"] in ("length", "cancelled") and b.done(rid)["usage"]["output"] == 0
        b.check()
    _, usage = b.ask([*main, *reply, 2], session="s", max_tokens=1)
    assert usage["cached"] == len(main) + len(reply) - 1


@both
def test_in_a_full_cache_what_a_line_has_left_makes_room_for_its_next_prompt(bench, hybrid):
    """Each turn an early message changes, so that most of the prompt is computed anew, ahead; another line rests meanwhile."""
    b = bench(hybrid, pages=150, checkpoints=12)
    other = [4, 3, 2, 1] * 20
    b.ask(other, session="t", max_tokens=1, points=[(len(other), "prompt")])
    head = [1, 2, 3, 4] * 4
    for turn in range(12):
        known = [*head, *[turn % 5, turn // 5, 2, 3] * 25]
        guess(b, known, f"g{turn}")
        b.drain()
        _, usage = b.ask([*known, 0, 0], session="s", max_tokens=1, points=[(len(head), "head"), (len(known), "turn")])
        assert usage["new"] == 2, f"turn {turn}"
        b.check()
        if turn == 3:
            _, rested = b.ask([*other, 2], session="t", max_tokens=1)
            assert rested["cached"] == len(other), "nobody took what the other line would go on from"


def test_guesses_take_no_checkpoint_that_a_main_line_wants(bench):
    b = bench(True, pages=400, checkpoints=8)
    main = [1, 2, 3, 4] * 30
    points = [(20, "head"), (60, "turn"), (100, "prompt")]
    reply, _ = b.ask(main, session="s", points=points)
    for n in range(6):
        guess(b, [n % 5, 0, n // 5] * 40, f"g{n}", session=f"t{n}", points=[(p, "turn") for p in range(10, 120, 10)])
        b.drain()
        b.check()
    kept = {c.position for c in b.cache.match(b.cache_tokens([*main, *reply])).line}
    assert kept >= {20, 60, 100, 123}


def test_prefill_only_is_for_background_work(bench):
    b = bench()
    rid = b.submit([1, 2], max_tokens=0)
    assert b.of(rid, "error")[0]["code"].startswith("FT-E0400")
    rid = b.submit([1, 2], max_tokens=0, priority="background", points=[(1, "turn", -1)])
    assert b.of(rid, "error")[0]["code"].startswith("FT-E0400")


def test_a_head_computed_while_the_agent_boots_is_ready_for_its_first_request(bench):
    b = bench(True, pages=300)
    head = [1, 2, 3, 4, 0] * 12
    guess(b, head, session="launch", points=[(60, "head")])
    b.drain()
    _, usage = b.ask([*head, 3, 3], session="launch", points=[(60, "head"), (62, "prompt")])
    assert usage["anticipated"] == 60 and usage["new"] == 2


def test_a_guess_that_ends_at_an_edit_point_gives_up_nothing_for_its_end(bench):
    b = bench(True, pages=300, checkpoints=6, chunk_tokens=64)
    known = [1, 2, 3, 4, 0] * 8
    guess(b, known, points=[(20, "frontier"), (40, "prompt")])  # guesses may hold two
    b.drain()
    assert [c.position for c in b.cache.match(b.cache_tokens(known)).line] == [20, 40] and not b.store.evictions
    b.check()


def test_slow_work_ahead_runs_in_chunks_of_a_second_and_a_broken_off_one_says_nothing_about_the_speed(bench):
    now = [0.0]
    b = bench(True, pages=900, chunk_tokens=256, clock=lambda: now[0])
    b.runner.layers = 4
    main = Submit("m", [4, 4, 4], 2, session="other")

    def layer():
        now[0] += sum(b.runner.batch_sizes[-1]) / 128 / b.runner.layers
        if b.runner.steps == 4:
            b.scheduler.post(main.message())

    b.runner.on_layer = layer
    rid = guess(b, [1, 2, 3, 4, 0] * 200)
    for _ in range(4):
        b.scheduler.step()
    assert b.runner.batch_sizes == [[256], [128], [128], [128]] and now[0] == 4.25, (
        "the last one ends in its first layer"
    )
    b.submits["m"] = main
    b.scheduler.submit(main)
    b.drain()
    b.check_output("m")
    assert b.runner.batch_sizes[6:9] == [[128]] * 3, "it goes on as fast as before"
    assert b.done(rid)["reason"] == "stop" and b.runner.computed_tokens == 1000 + 3 + 1
    b.check()
