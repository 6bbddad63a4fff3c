"""Cases from the field: sessions as agents have them, and what of them may be computed again."""

import random

import pytest

both = pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
CHECKPOINTS = 19


@pytest.fixture
def engine(bench):
    def make(hybrid=True, pages=4000, checkpoints=CHECKPOINTS, **options):
        return bench(hybrid, pages=pages, checkpoints=checkpoints, chunk_tokens=512, max_running=8, **options)

    return make


def text(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(5) for _ in range(n)]


def edges(prompt, head, turn=None):
    points = [(head, "head", 2, "head.end"), (len(prompt) - 2, "prompt", 2, "prompt.end")]
    return points if turn is None else [*points, (turn, "turn", 3, "turn")]


@both
def test_a_title_request_leaves_the_main_line_where_it_was(engine, hybrid):
    b = engine(hybrid)
    main = text(1, 6000)
    reply, _ = b.ask(main, session="s", points=edges(main, 1600))
    title = text(2, 300)
    b.ask(title, session="s", priority="side", points=edges(title, 250))
    _, usage = b.ask([*main, *reply, 1, 2], session="s")
    assert usage["cached"] == len(main) + len(reply) - 1 and usage["replayed"] == 0


def test_a_title_request_in_a_full_store_leaves_the_main_line_where_it_was(engine):
    b = engine(checkpoints=8)
    line = text(3, 400)
    for turn in range(6):
        reply, usage = b.ask(line, session="s", points=edges(line, 200, 380))
        assert turn == 0 or usage["replayed"] == 0
        title = text(50 + turn, 100)
        b.ask(title, session="s", priority="side", points=edges(title, 90))
        line = [*line, *reply, *text(turn, 30)]


@both
def test_parallel_sessions_that_share_a_prefix_answer_as_if_cold(engine, hybrid):
    b = engine(hybrid)
    shared = text(4, 2000)
    prompts = [shared + text(100 + n, 40) for n in range(4)]
    first, _ = b.ask(prompts[0], session="s0", points=edges(prompts[0], 2000))
    rids = [b.submit(p, session=f"s{n}", points=edges(p, 2000)) for n, p in enumerate(prompts)]
    b.drain()
    for rid in rids:
        b.check_output(rid)  # against a cold run
        assert b.done(rid)["usage"]["cached"] >= 2000
    assert b.output(rids[0]) == first


@both
@pytest.mark.parametrize("size", [1000, 4000, 8000])
def test_a_changing_tail_is_all_that_is_computed_again(engine, hybrid, size):
    b = engine(hybrid)
    static = text(5, size * 9 // 10)
    for n in range(4):
        prompt = static + text(200 + n, size // 10)
        _, usage = b.ask(prompt, session="s", max_tokens=1, points=edges(prompt, len(static)))
        assert n == 0 or len(prompt) - usage["cached"] <= size // 10


@both
def test_a_turn_that_differs_at_the_end_resumes_there(engine, hybrid):
    b = engine(hybrid)
    first = text(6, 3000)
    b.ask(first, session="s", points=edges(first, 500, 2500))
    second = first[:2500] + text(7, 700)
    _, usage = b.ask(second, session="s", points=edges(second, 500, 2500))
    assert 2500 <= usage["cached"] < 2510 and usage["replayed"] <= 10


@both
def test_three_chains_with_forks_each_resume_at_theirs(engine, hybrid):
    b = engine(hybrid)
    for chain in range(3):
        trunk = text(300 + chain, 1600)
        b.ask(trunk, session=f"chain{chain}", points=edges(trunk, 400))
        fork = trunk[:400] + text(310 + chain, 600)
        b.ask(fork, session=f"chain{chain}", points=edges(fork, 400))
    for chain in range(3):
        for seed, begin in (
            (320, text(300 + chain, 1600)),
            (330, text(300 + chain, 1600)[:400] + text(310 + chain, 600)),
        ):
            _, usage = b.ask(begin + text(seed + chain, 20), session=f"chain{chain}")
            assert usage["cached"] >= len(begin) - 2, "each branch goes on at its own end"


def test_six_sessions_in_round_robin_each_resume_at_their_own_end(engine):
    b = engine(checkpoints=48)
    # Some share 1,280 tokens, the others 1,248: neither falls on a round number of pages for all.
    common = text(8, 1280)
    lines = [common[: 1280 if n % 2 else 1248] + text(400 + n, 100) for n in range(6)]
    for turn in range(4):
        for n, line in enumerate(lines):
            reply, usage = b.ask(line, session=f"s{n}", points=edges(line, 1248))
            assert turn == 0 or (usage["replayed"] == 0 and usage["new"] <= 31)
            lines[n] = [*line, *reply, *text(turn * 10 + n, 30)]
    for n in (2, 3, 4, 5):
        assert b.done(f"r{n}")["usage"]["cached"] >= 1248, "what they share was computed once"


@both
@pytest.mark.parametrize("size", [500, 900, 40, 3])
def test_short_prompts_are_reused_from_the_second_turn_on(engine, hybrid, size):
    b = engine(hybrid)
    prompt = text(9, size)
    reply, _ = b.ask(prompt, session="s")
    _, usage = b.ask([*prompt, *reply, 1, 1], session="s")
    assert usage["cached"] == size + len(reply) - 1
    _, usage = b.ask(prompt, session="s")
    assert usage["cached"] == size - 1


@both
def test_what_the_next_rendering_changes_costs_no_more_than_itself(engine, hybrid):
    """The template adds tokens for the generation alone, thinking leaves the history, the text is tokenised differently."""
    b = engine(hybrid)
    history, generation = text(10, 800), [4, 4]
    b.ask([*history, *generation], session="s", forced=text(11, 60), max_tokens=60, points=[(800, "prompt")])
    second = [*history, *text(12, 30), *text(13, 50)]
    _, usage = b.ask([*second, *generation], session="s", points=[(len(second), "prompt")])
    assert usage["cached"] >= 800 and usage["replayed"] <= 2


def test_five_turns_of_much_new_text(engine):
    b = engine(checkpoints=8)
    line = text(14, 100)
    for turn in range(5):
        new = text(500 + turn, 2300)
        line = [*line, *new]
        reply, usage = b.ask(line, session="s", max_tokens=2, points=edges(line, 100))
        assert turn == 0 or (usage["replayed"] == 0 and usage["new"] == 2301)
        line += reply


@both
def test_two_hundred_turns_under_a_cap_stay_warm(engine, hybrid):
    b = engine(hybrid, pages=1200, checkpoints=8)
    line = text(15, 200)
    for turn in range(200):
        reply, usage = b.ask(line, session="s", max_tokens=2, points=edges(line, 100, 190))
        assert turn == 0 or (usage["replayed"] == 0 and usage["new"] <= 11)
        if b.store is not None:
            assert len(b.store) <= 8 and b.store.bytes <= b.store.cap_bytes
        line = [*line, *reply, *text(600 + turn, 10)]


def test_a_main_line_and_four_subagents_each_keep_their_own(engine):
    b = engine()
    tools = text(16, 900)
    lines = {"s": tools + text(17, 300)}
    for n in range(4):
        lines[f"s/agent{n}"] = tools + text(700 + n, 150)
    for turn in range(5):
        rids = {
            name: b.submit(line, session=name, max_tokens=3, points=edges(line, 900)) for name, line in lines.items()
        }
        b.drain()
        for name, rid in rids.items():
            b.check_output(rid)
            usage = b.done(rid)["usage"]
            assert turn == 0 or (usage["replayed"] == 0 and usage["new"] == 13), name
            lines[name] = [*lines[name], *b.output(rid), *text(turn, 12)]
    assert len(b.store) <= CHECKPOINTS


def test_a_head_that_several_sessions_use_outlives_them_for_an_hour(engine):
    now = [0.0]
    b = engine(checkpoints=12)
    b.store._clock = lambda: now[0]
    shared = text(18, 600)
    for n in range(3):
        b.ask([*shared, *text(800 + n, 20)], session=f"s{n}", points=[(600, "head")])
    alone = text(19, 600)
    b.ask([*alone, 1], session="t", points=[(600, "head")])

    def crowd(seed):
        for n in range(20):
            line = text(seed + n, 200)
            b.ask(line, session=f"crowd{n}", points=edges(line, 150))

    crowd(900)
    assert b.cache.match(b.cache_tokens(shared)).resume_at == 600
    assert b.cache.match(b.cache_tokens(alone)).resume_at < 600
    now[0] += 3601
    crowd(950)
    assert b.cache.match(b.cache_tokens(shared)).resume_at < 600
