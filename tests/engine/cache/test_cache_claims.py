from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.claims import QUOTAS, WEIGHTS, Claims, ahead_of, base, line_of, within_quota
from engine.cache.node import Checkpoint, Node
from engine.protocol import EditPoint


def checkpoint(position):
    return Checkpoint(position, Node(None, b"", -1, 0), position, "decode", "s", False, 1)


def test_lines_of_a_session():
    assert line_of("s/a", "main") == "s/a"
    assert base(line_of("s/a", "side")) == base(line_of("s/a", "background")) == "s/a"
    assert ahead_of(line_of("s/a", "side")) == line_of("s/a", "background") != line_of("s/a", "side")


def test_beyond_its_quota_the_oldest_loses_its_class():
    claims, made = Claims(), [checkpoint(p) for p in (10, 20, 30)]
    for c in made:
        claims.add(c, "s", EditPoint(c.position, "turn", 2, "turn"))
    assert [c.kind for c in made] == ["decode", "turn", "turn"] and not made[0].claims
    claims.add(made[0], "s", EditPoint(10, "turn", 2, "turn"))
    assert [bool(c.claims) for c in made] == [True, False, True], "asked for again, it is the newest"
    claims.add(made[1], "t", EditPoint(20, "turn", 2, "turn"))
    claims.add(made[1], "s", EditPoint(20, "turn", 2, "other edge"))
    assert all(c.claims for c in made), "lines and edges have quotas of their own"
    claims.check(made)


def test_the_heaviest_claim_is_the_class():
    claims, made = Claims(), checkpoint(10)
    for kind in ("prompt", "head", "turn"):
        claims.add(made, "s", EditPoint(10, kind))
    assert made.kind == "head"
    claims.forget("s")
    assert made.kind == "decode" and not made.claims
    claims.check([made])


def test_a_prompt_takes_the_deepest_points_of_each_edge():
    points = [EditPoint(p, "turn", 2, "turn") for p in (10, 50, 30)] + [EditPoint(5, "head", 1, "head.end")]
    assert [p.position for p in within_quota(points)] == [5, 30, 50]
    many = [EditPoint(p, "prompt") for p in range(1, 20)]
    assert [p.position for p in within_quota(many)] == list(range(20 - QUOTAS["prompt"], 20))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from("st"),
            st.sampled_from(sorted(WEIGHTS)),
            st.integers(0, 3),
            st.integers(0, 9),
        )
    )
)
def test_any_history_of_claims_adds_up(actions):
    claims, made = Claims(), {}
    for n, line, kind, quota, what in actions:
        if what == 0 and n in made:
            claims.drop(made.pop(n))
        elif what == 1:
            claims.forget(line)
        else:
            claims.add(made.setdefault(n, checkpoint(n + 1)), line, EditPoint(n + 1, kind, quota, ""))
        claims.check(made.values())
        for c in made.values():
            kinds = [k for _, k, _ in c.claims]
            assert c.kind == max(kinds, key=WEIGHTS.__getitem__, default="decode")
        for line in "st":
            for k in WEIGHTS:
                assert sum((line, k, "") in c.claims for c in made.values()) <= max(3, QUOTAS[k])
