"""A prefill that is given up in the middle: what was computed is not computed again, and nobody else pays for that."""

import random

import pytest

from engine.errors import FtError

CHUNK = 16
PROMPT = [random.Random(1).randrange(5) for _ in range(20 * CHUNK + 5)]
HEAD = (40, "head", 2, "head.end")
POINTS = [HEAD, (len(PROMPT) - 2, "prompt", 2, "prompt.end")]


def hang_up(b, rid, layer=1):
    """The client goes away while a step runs: its rows leave before the next layer."""
    layers = iter(range(100))
    b.runner.on_layer = lambda: b.scheduler.post({"t": "cancel", "rid": rid}) if next(layers) == layer else None
    b.scheduler.step()
    b.runner.on_layer = lambda: None
    assert b.done(rid)["reason"] == "cancelled"
    b.check()


def rolled(b):
    return [c for c in b.store.listing() if c["edge"] == "rolling"]


@pytest.fixture
def engine(bench):
    def make(hybrid=True, checkpoints=8, pages=400, **options):
        return bench(hybrid, pages=pages, checkpoints=checkpoints, chunk_tokens=CHUNK, **options)

    return make


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7, 12, 19, 20])
@pytest.mark.parametrize("inside", [True, False], ids=["in a step", "between steps"])
def test_what_a_hang_up_leaves_is_not_computed_again(engine, steps, inside):
    b = engine()
    rid = b.submit(PROMPT, 1, session="s", points=POINTS)
    for _ in range(steps):
        b.scheduler.step()
        assert len(rolled(b)) <= 1
    if inside:
        hang_up(b, rid)
    else:
        b.scheduler.cancel(rid)
    computed = b.runner.computed_tokens
    _, usage = b.ask(PROMPT, max_tokens=1, session="s", points=POINTS)
    assert usage["replayed"] <= CHUNK and usage["cached"] >= steps * CHUNK - CHUNK
    assert b.runner.computed_tokens == computed + len(PROMPT) - usage["cached"]
    b.check()


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
@pytest.mark.parametrize("checkpoints", [3, 8])
def test_a_client_that_gives_up_again_and_again_is_served_in_the_end(engine, hybrid, checkpoints):
    b = engine(hybrid, checkpoints)
    for attempt in range(30):
        rid = b.submit(PROMPT, 1, session="s", points=POINTS)
        for _ in range(2):
            b.scheduler.step()
        if b.of(rid, "done"):
            break
        hang_up(b, rid)
    b.check_output(rid)
    assert attempt == len(PROMPT) // (2 * CHUNK)
    assert b.runner.computed_tokens == len(PROMPT), "each token once"


def test_a_step_that_fails_loses_itself(engine):
    b = engine()
    rid = b.submit(PROMPT, 1, session="s", points=POINTS)
    for _ in range(5):
        b.scheduler.step()
    b.runner.fail_next = FtError("broken")
    b.scheduler.step()
    assert b.of(rid, "error")
    _, usage = b.ask(PROMPT, max_tokens=1, session="s", points=POINTS)
    assert usage["cached"] == 5 * CHUNK and usage["replayed"] == 0


def test_a_prefill_that_ends_well_leaves_no_trace(engine):
    b = engine()
    reply, _ = b.ask(PROMPT, session="s", points=POINTS)
    ends = {HEAD[0], len(PROMPT) - 2, len(PROMPT) + len(reply) - 1}
    assert {c["position"] for c in b.store.listing()} == ends and not rolled(b) and not b.store.evictions


def test_it_follows_in_one_place_and_small_chunks_do_not_copy_it_each_time(engine):
    b = engine(checkpoints=3)
    b.submit(PROMPT, 1, session="s")
    copies, copy = [], b.runner.copy_state
    b.runner.copy_state = lambda source, target: (copies.append(target), copy(source, target))
    for _ in range(10):
        b.scheduler.step()
    assert len(copies) == 10 and len(set(copies)) == 1 and len(b.store) == 1
    b.scheduler._budget.chunk_tokens = 2  # as beside a decode
    for _ in range(8):
        b.scheduler.step()
    assert len(copies) == 12
    b.drain()
    b.check()


def test_two_prefills_of_one_session_each_keep_their_own(engine):
    b = engine()
    prompts = [[n, *PROMPT] for n in range(2)]
    rids = [b.submit(p, 1, session="s") for p in prompts]
    for _ in range(8):
        b.scheduler.step()
    for rid in rids:
        hang_up(b, rid)
    for prompt in prompts:
        _, usage = b.ask(prompt, max_tokens=1, session="s")
        assert usage["cached"] >= 3 * CHUNK and usage["replayed"] <= CHUNK


def test_what_a_follower_goes_on_from_stays(engine):
    """Another line has come to it: it is not moved on under its feet."""
    b = engine()
    leader = b.submit(PROMPT, 1, session="s")
    for _ in range(4):
        b.scheduler.step()
    (mark,) = rolled(b)
    other = b.submit([*PROMPT[: 4 * CHUNK], 1, 2, 3], 1, session="t")
    for _ in range(4):
        b.scheduler.step()
    b.drain()
    assert b.done(other)["usage"]["cached"] == mark["position"]
    assert mark["position"] in {c["position"] for c in b.store.listing()}
    b.check_output(leader)
    b.check_output(other)
    b.check()


def test_in_a_full_store_it_takes_no_place_that_is_worth_more(engine):
    """Four sessions at rest want all there is; their newest and their heads stay whatever a long prefill does."""
    b = engine(checkpoints=12)
    lines = {}
    for n in range(4):
        line = [n, *PROMPT[:100], n]
        reply, _ = b.ask(line, session=f"s{n}", points=[(50, "head", 2, "head.end"), (100, "prompt", 2, "prompt.end")])
        lines[n] = line + reply
    long = [4, 4, *PROMPT]
    rid = b.submit(long, 1, session="long")
    for _ in range(12):
        b.scheduler.step()
        assert b.store.bytes <= b.store.cap_bytes
    hang_up(b, rid)
    for n, line in lines.items():
        _, usage = b.ask([*line, 1, 1], max_tokens=1, session=f"s{n}")
        assert usage["replayed"] == 0, "each goes on at its end"
    b.check()


def test_work_ahead_keeps_states_of_its_own(engine):
    b = engine(checkpoints=12)
    b.submit(PROMPT, 0, session="s", priority="background")
    b.drain()
    assert len(rolled(b)) == 1 and len(b.store) > 1, "its chunks' ends serve a prompt that leaves it early"
    b.check()
