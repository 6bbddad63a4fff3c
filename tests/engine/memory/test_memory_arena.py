import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.arena import Arena, ArenaFull

TENANTS = ("kv", "state", "experts")


@given(
    slabs=st.integers(0, 12),
    limits=st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 12)),
    steps=st.lists(
        st.tuples(st.sampled_from(["lease", "release", "limit"]), st.sampled_from(TENANTS), st.integers(0, 6))
    ),
)
def test_arena_matches_a_plain_model(slabs, limits, steps):
    """The model keeps one owner per slab and nothing else."""
    arena = Arena(4096, slabs, limits)
    owner = {slab: None for slab in range(slabs)}
    limit = dict(limits)
    for action, tenant, n in steps:
        mine = [s for s, o in owner.items() if o == tenant]
        free = [s for s, o in owner.items() if o is None]
        if action == "lease":
            if n > len(free) or n > max(0, limit.get(tenant, slabs) - len(mine)):
                with pytest.raises(ArenaFull):
                    arena.lease(tenant, n)
            else:
                taken = arena.lease(tenant, n)
                assert taken == free[:n]
                owner.update(dict.fromkeys(taken, tenant))
        elif action == "release":
            given_back = mine[:n]
            arena.release(tenant, given_back)
            owner.update(dict.fromkeys(given_back))
        else:
            arena.set_limit(tenant, n)
            limit[tenant] = n
        arena.check()
        for name in TENANTS:
            assert arena.held(name) == {s for s, o in owner.items() if o == name}
        assert arena.free_slabs == sum(o is None for o in owner.values())


def test_release_of_a_foreign_slab_changes_nothing():
    arena = Arena(4096, 4)
    (a, b) = arena.lease("kv", 2)
    (c,) = arena.lease("state", 1)
    for wrong in ([a, c], [a, a], [99], [-1]):
        with pytest.raises(ValueError):
            arena.release("kv", wrong)
        arena.check()
        assert arena.held("kv") == {a, b}


def test_limits_that_fit_are_a_guarantee():
    arena = Arena(4096, 10, {"kv": 6, "state": 4})
    arena.lease("kv", 6)
    with pytest.raises(ArenaFull):
        arena.lease("kv", 1)
    assert len(arena.lease("state", 4)) == 4


def test_check_notices_a_slab_held_twice():
    arena = Arena(4096, 3)
    (slab,) = arena.lease("kv", 1)
    arena._held["state"] = {slab}
    with pytest.raises(AssertionError):
        arena.check()
