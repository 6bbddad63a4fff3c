"""Saved states by hand: a pin outlasts everything, what is dropped is gone, what nobody wants is cleaned up."""

from types import SimpleNamespace

import pytest

from engine.cache.by_hand import AnchorsByHand
from engine.cache.checkpoints import CheckpointStore
from engine.cache.lines import LIVE_SESSION_S
from engine.cache.node import token_array
from engine.cache.radix import RadixCache
from engine.errors import BadRequest, NotFound, Unsupported
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, StatePool

P = 4


@pytest.fixture
def m():
    arena = Arena(1024, 300, {"kv": 200})
    pool, states = PagePool(arena, 256), StatePool(arena, [256, 256])
    made = SimpleNamespace(now=0.0, states=states)
    made.store = CheckpointStore(states, 8 * states.state_bytes, 1, lambda kind, fields: None, lambda: made.now)
    made.cache = RadixCache(pool, P, True, made.store.drop, made.store.protected)
    made.by_hand = AnchorsByHand(made.store)

    def line(first, *positions, session="s"):
        tokens = token_array([first] * max(positions))
        need = -(-len(tokens) // P)
        made.cache.evict(max(0, need - pool.free))
        pages = pool.alloc(need)
        made.cache.insert(tokens, pages)
        for page in pages:
            pool.release(page)
        for position in positions:
            state = made.store.reserve(False)
            if state is not None:
                made.store.commit(made.cache, tokens, position, state, "prompt", session, False)
            made.store.check()

    def at(first, position=None):
        kept = [c for c in made.store.kept() if c.node.key.startswith(token_array([first]).tobytes())]
        return [c.position for c in kept] if position is None else next(c for c in kept if c.position == position)

    def act(do, checkpoint=None):
        named = (
            {"id": checkpoint.state, "position": checkpoint.position, "line": checkpoint.session} if checkpoint else {}
        )
        answer = made.by_hand.act({"do": do, **named})
        made.store.check()
        states.check()
        return answer

    made.line, made.at, made.act = line, at, act
    return made


def fill(m, times):
    for n in range(times):
        m.line(100 + n, 20, 40, session=f"other{n}")


def test_a_pinned_state_and_its_pages_outlast_what_comes_and_unpinned_it_goes(m):
    m.line(1, 20, 40, session="gone")
    assert m.act("pin", m.at(1, 20))["pinned"] == 1
    assert [one["pinned"] for one in m.store.listing() if one["position"] == 20] == [True]
    m.now += LIVE_SESSION_S + 1
    fill(m, 30)
    assert m.at(1) == [20]
    assert m.cache.match(token_array([1] * 20 + [0])).checkpoint is m.at(1, 20), "its KV is there"
    assert m.store.resize(m.states.state_bytes), "all others go"
    assert m.at(1) == [20] and len(m.store) == 1 and not m.store.evict()
    m.store.resize(8 * m.states.state_bytes)
    assert m.act("unpin", m.at(1, 20)) == {"schema": "ft.anchors-act/1", "dropped": 0, "bytes": 0, "pinned": 0}
    m.now += LIVE_SESSION_S + 1
    fill(m, 30)
    assert m.at(1) == []


def test_no_more_than_a_quarter_can_be_pinned(m):
    m.line(1, 20, 40)
    m.line(2, 20)
    m.act("pin", m.at(1, 20))
    m.act("pin", m.at(1, 20))
    m.act("pin", m.at(2, 20))
    with pytest.raises(BadRequest, match="2 saved states are pinned"):
        m.act("pin", m.at(1, 40))
    m.act("unpin", m.at(2, 20))
    m.act("pin", m.at(1, 40))


def test_what_is_dropped_is_gone_though_wanted_and_its_state_is_free(m):
    m.line(1, 20, 40)
    used = m.states.used
    gone = m.at(1, 40)
    m.act("pin", gone)
    assert m.act("drop", gone)["dropped"] == 1
    assert m.at(1) == [20] and m.states.used == used - 1
    with pytest.raises(NotFound):
        m.act("drop", gone)


def test_an_id_that_is_another_states_by_now_is_not_believed(m):
    m.line(1, 20)
    kept = m.at(1, 20)
    for wrong in ({"position": 16}, {"line": "other"}, {"id": kept.state + 1}):
        asked = {"do": "drop", "id": kept.state, "position": 20, "line": "s", **wrong}
        with pytest.raises(NotFound):
            m.by_hand.act(asked)
    assert m.at(1) == [20]


def test_cleaning_up_leaves_what_is_wanted_or_pinned(m):
    m.line(1, 4, 8, 12, 16, 20, session="a")  # three of a line's prompts are wanted, the newest
    unwanted = [c.position for c in m.store.kept() if not c.claims]
    assert unwanted == [4, 8]
    m.act("pin", m.at(1, 4))
    told = m.act("gc")
    assert (told["dropped"], told["bytes"]) == (1, m.states.state_bytes)
    assert sorted(m.at(1)) == [4, 12, 16, 20]
    assert m.act("gc")["dropped"] == 0


def test_a_model_without_states_says_so():
    with pytest.raises(Unsupported):
        AnchorsByHand(None).act({"do": "gc"})
