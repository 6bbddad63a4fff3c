from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.checkpoints import CheckpointStore
from engine.cache.lines import LIVE_SESSION_S
from engine.cache.node import token_array
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, StatePool
from engine.protocol import EditPoint

P = 4


@pytest.fixture
def make():
    def build(cap=4, grid=1):
        arena = Arena(1024, 300, {"kv": 200})
        pool, states = PagePool(arena, 256), StatePool(arena, [256, 256])
        made = SimpleNamespace(pool=pool, states=states, now=0.0, events=[])
        made.store = CheckpointStore(
            states,
            cap * states.state_bytes,
            grid,
            lambda kind, fields: made.events.append((kind, fields["position"])),
            lambda: made.now,
        )
        made.cache = RadixCache(pool, P, True, made.store.drop, made.store.protected)

        def line(tokens, *points, session="s", side=False):
            need = -(-len(tokens) // P)
            made.cache.evict(max(0, need - pool.free))
            pages = pool.alloc(need)
            made.cache.insert(token_array(tokens), pages)
            for page in pages:
                pool.release(page)
            taken = []
            for position, kind in points:
                state = made.store.reserve(side)
                taken.append(state is not None)
                if state is not None:
                    made.store.commit(made.cache, token_array(tokens), position, state, kind, session, side)
                made.store.check()
                states.check()
            return taken

        def positions(tokens):
            return [c.position for c in made.cache.match(token_array([*tokens, 99])).line]

        made.line, made.positions = line, positions
        return made

    return build


def test_the_cap_holds_before_anything_is_allocated(make):
    m = make(cap=3)
    tokens = list(range(40))
    m.line(tokens, *((p, "prompt") for p in range(4, 40, 4)))
    assert len(m.store) == 3 and m.states.used == 3
    assert m.events.count(("checkpoint-created", 36)) == 1
    assert sum(kind == "checkpoint-evicted" for kind, _ in m.events) == m.store.evictions == 6
    reserved = m.store.reserve(False)
    assert m.states.used == 3 and m.store.bytes == m.store.cap_bytes
    m.store.cancel(reserved)
    assert make(cap=0).store.reserve(False) is None


def test_eviction_goes_by_replay_cost_and_class(make):
    m = make(cap=4)
    tokens = list(range(60))
    m.line(tokens, (40, "prompt"), (44, "prompt"), (46, "turn"), (60, "prompt"), session="a")
    # Replay to 44 costs 4 tokens at weight 2, to 46 two at weight 8; then six at weight 8, against forty at weight 2.
    m.line([7] * 40, (40, "turn"), session="b")
    assert m.positions(tokens) == [40, 46, 60]
    m.line([8] * 40, (40, "turn"), session="b")
    assert m.positions(tokens) == [40, 60]


def test_what_nobody_uses_loses_its_worth(make):
    """A finished session with a long gap gives way to a shorter gap that is in use."""
    m = make(cap=3)
    m.line([1] * 100, (60, "prompt"), (100, "prompt"), session="finished")
    used = [2] * 40
    m.line(used, (20, "prompt"), session="busy")
    for _ in range(12):
        m.store.used(m.cache.match(token_array([*used[:20], 0])), "busy", False, [])
    m.line(used, (40, "prompt"), session="busy")
    assert m.positions(used) == [20, 40] and len(m.positions([1] * 100)) == 1
    m.line([3] * 8, (8, "prompt"), session="busy")
    assert m.positions(used) == [20, 40]


def test_the_head_of_a_live_session_is_never_evicted(make):
    m = make(cap=4)
    head = [1] * 4
    m.line(head, (4, "head"), session="main")
    for n in range(20):
        tokens = [10 + n] * 40
        m.line(tokens, (20, "turn"), (40, "prompt"), session=f"other{n % 2}")
        m.store.used(m.cache.match(token_array([*head, 0])), "main", False, [])
        assert m.positions(head) == [4]
    m.now += LIVE_SESSION_S + 1
    for n in range(8):
        m.line([50 + n] * 40, (20, "turn"), (40, "prompt"), session="late")
    assert m.positions(head) == [], "a session that is gone keeps nothing"


def test_the_last_head_counts(make):
    m = make(cap=3)
    m.line([1] * 8, (4, "head"), (8, "head"), session="main")
    m.line([2] * 40, (20, "turn"), (40, "turn"), session="main")
    m.line([3] * 40, (40, "turn"), session="main")
    assert m.positions([1] * 8) == [8]


def test_side_requests_never_evict_the_main_line(make):
    m = make(cap=3)
    main = list(range(12))
    assert m.line(main, (4, "turn"), (8, "decode"), (12, "decode"), session="s") == [True] * 3
    assert m.line([5] * 40, (20, "head"), (40, "head"), session="s", side=True) == [False] * 2
    assert m.positions(main) == [4, 8, 12]
    n = make(cap=3)
    n.line(main, (12, "decode"), session="s")
    n.line([5] * 40, (10, "head"), (40, "prompt"), session="t", side=True)
    assert n.line([6] * 40, (40, "prompt"), session="t", side=True) == [True], "they evict each other's"
    assert n.positions(main) == [12]
    n.line([8] * 40, (10, "turn"), (20, "turn"), (30, "turn"), session="s")
    assert len(n.positions([8] * 40)) >= 2, "the main line evicts theirs"


def test_a_side_checkpoint_used_by_the_main_line_becomes_one_of_its_own(make):
    m = make(cap=1)
    tokens = [1] * 4
    m.line(tokens, (4, "prompt"), side=True)
    m.store.used(m.cache.match(token_array([*tokens, 0])), "s", False, [])
    assert m.line([2] * 40, (40, "head"), session="t", side=True) == [False]


def test_a_side_checkpoint_at_an_edit_point_of_the_main_line_becomes_one_of_its_own(make):
    m = make(cap=9)
    tokens = list(range(40))
    m.line(tokens, (4, "prompt"), (20, "prompt"), side=True)
    m.store.used(m.cache.match(token_array([*tokens, 99])), "s", False, [EditPoint(4, "frontier")])
    assert m.line([2] * 40, *((n, "prompt") for n in (10, 20, 40)), session="t", side=True) == [True] * 3
    assert m.positions(tokens) == [4, 20], "it takes nothing of what is meant for side requests"


def test_touching_refreshes_only_that_checkpoint(make):
    m = make(cap=8)
    tokens = [1] * 12
    m.line(tokens, (4, "prompt"), (8, "prompt"), (12, "prompt"))
    match = m.cache.match(token_array([*tokens, 0]))
    before = [c.last_use for c in match.line]
    m.store.used(match, "s", False, [EditPoint(8, "turn"), EditPoint(4, "decode")])
    after = [c.last_use for c in match.line]
    assert after[:2] == before[:2] and after[2] > before[2]
    assert [c.kind for c in match.line] == ["prompt", "turn", "prompt"], "classes only rise"


def test_a_position_is_kept_once_and_an_uncached_one_not_at_all(make):
    m = make()
    tokens = [1] * 8
    m.line(tokens, (8, "decode"))
    m.line(tokens, (8, "turn"))
    (checkpoint,) = m.cache.match(token_array([*tokens, 0])).line
    assert checkpoint.kind == "turn" and len(m.store) == m.states.used == 1
    state = m.store.reserve(False)
    m.store.commit(m.cache, token_array([2] * 8), 8, state, "turn", "s", False)
    assert len(m.store) == m.states.used == 1


def test_a_live_state_is_adopted_without_a_copy(make):
    m = make(cap=1)
    tokens = [1] * 8
    m.line(tokens)
    state = m.states.alloc()
    assert m.store.adopt(state, False)
    m.store.commit(m.cache, token_array(tokens), 8, state, "decode", "s", False)
    assert m.cache.match(token_array([*tokens, 0])).checkpoint.state == state
    other = m.states.alloc()
    assert not m.store.adopt(other, True)
    m.states.release(other)


def test_states_off_the_grid_are_marked(make):
    m = make(grid=64)
    tokens = [1] * 70
    m.line(tokens, (64, "prompt"), (70, "decode"))
    assert [c.exact for c in m.cache.match(token_array([*tokens, 0])).line] == [True, False]


def test_two_hundred_turns_under_a_small_cap_do_not_collapse(make):
    """A growing conversation resumes near its last turn's end, each time, while a dead session holds old checkpoints."""
    m = make(cap=6)
    for n in range(6):
        m.line([100 + n] * 160, (160, "turn"), session="dead")
    tokens = []
    for turn in range(200):
        new = [turn % 7, turn % 11, 3]
        match = m.cache.match(token_array([*tokens, *new]))
        assert turn < 2 or match.resume_at == len(tokens), "the next turn resumes where the last one ended"
        m.store.used(match, "main", False, [])
        tokens += new
        m.line(tokens, (len(tokens), "decode"), session="main")
        if turn % 10 == 0:
            m.line([200 + turn] * 80, (80, "prompt"), session="main", side=True)


def roll(cache, store, tokens, before, session, side):
    """Move what follows a prefill to the end of `tokens`, or have it begin there."""
    claim = session, "decode", "rolling"
    state = store.take_back(before, claim) if before is not None and store.holds(before) else None
    state = store.reserve_passing(side, len(tokens), "decode") if state is None else state
    if state is None:
        return None
    points = [EditPoint(len(tokens), "decode", 1, "rolling")]
    return store.commit(
        cache, token_array(tokens), len(tokens), state, "decode", session, side, points, session, passing=True
    )


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_history_keeps_the_invariants(data):
    arena = Arena(1024, 300, {"kv": 40})
    pool, states = PagePool(arena, 256), StatePool(arena, [256])
    cap = data.draw(st.integers(0, 5))
    store = CheckpointStore(states, cap * states.state_bytes)
    cache = RadixCache(pool, P, True, store.drop, store.protected)
    known, rolling = [[0]], None
    for _ in range(data.draw(st.integers(0, 25))):
        base = data.draw(st.sampled_from(known))
        tokens = base[: data.draw(st.integers(0, len(base)))]
        tokens = tokens + data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=12))
        side = data.draw(st.booleans())
        session = data.draw(st.sampled_from("abc"))
        match = cache.match(token_array(tokens))
        store.used(match, session, side, [])
        need = -(-len(tokens) // P)
        if pool.free < need:
            cache.evict(need - pool.free)
        pages = pool.alloc(need)
        cache.insert(token_array(tokens), pages)
        for page in pages:
            pool.release(page)
        for position in data.draw(st.sets(st.integers(1, len(tokens)), max_size=3)):
            state = store.reserve(side)
            if state is not None:
                kind = data.draw(st.sampled_from(["head", "turn", "live", "prompt", "decode"]))
                store.commit(cache, token_array(tokens), position, state, kind, session, side)
        if data.draw(st.booleans()):
            rolling = roll(cache, store, tokens, rolling, session, side)
        known.append(tokens)
        cache.check()
        store.check()
        states.check()
        assert states.used == len(store) <= cap


def test_what_passes_takes_no_place_that_is_worth_more(make):
    m = make(cap=4)
    for n in range(2):
        m.line([n] * 40, (20, "prompt"), (40, "prompt"), session=f"s{n}")
    assert m.store.reserve_passing(False, 1, "decode") is None, "all are wanted, and worth more"
    for n in range(2):
        assert m.store.reserve_passing(False, 10_000, "decode") is not None
    assert m.store.reserve_passing(False, 10_000, "decode") is None, "what is left is the newest of live lines"
    assert [m.positions([n] * 40) for n in range(2)] == [[40], [40]]


def test_what_passes_is_not_what_its_line_came_to_and_moves_without_a_word(make):
    m = make(cap=8)
    m.line([1] * 8, (8, "decode"))
    told = len(m.events)
    m.line([1] * 40)
    made = roll(m.cache, m.store, [1] * 12, None, "s", False)
    for n in (16, 20, 36):
        made = roll(m.cache, m.store, [1] * n, made, "s", False)
    assert [c["position"] for c in m.store.listing()] == [8, 36] and len(m.events) == told
    m.store.check()
    m.store.claim(made, "live", "t", False, [], "t")
    assert m.store.take_back(made, ("s", "decode", "rolling")) is None, "another line has come to it"


def test_what_is_passing_goes_before_anything_that_is_to_stay(make):
    """And not for another that is passing, and nothing is worth less because it stands before it."""
    m = make(cap=3)
    tokens = list(range(64))

    def passing(session, position, replay):
        state = m.store.reserve_passing(False, replay, "decode")
        if state is None:
            return None
        points = [EditPoint(position, "decode", 1, "rolling")]
        return m.store.commit(
            m.cache, token_array(tokens), position, state, "decode", session, False, points, session, passing=True
        )

    m.line(tokens, (20, "prompt"), (64, "prompt"), session="a")
    first = passing("a", 60, 40)
    assert m.positions(tokens) == [20, 60, 64]
    assert passing("b", 40, 5) is None and m.store.holds(first)
    m.line([7] * 40, (40, "turn"), session="c")
    assert m.positions(tokens) == [20, 64] and m.positions([7] * 40) == [40] and not m.store.holds(first)
    m.store.check()
