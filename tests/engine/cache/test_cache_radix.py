from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.checkpoints import CheckpointStore
from engine.cache.node import common_tokens, token_array
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, StatePool

P = 4


def make(hybrid=False, pages=60, cap=8):
    arena = Arena(1024, 200, {"kv": (pages + 1) // 4 + 1})
    pool = PagePool(arena, 256)
    if not hybrid:
        return RadixCache(pool, P), pool, None
    states = StatePool(arena, [128])
    store = CheckpointStore(states, cap * states.state_bytes)
    return RadixCache(pool, P, True, store.drop, store.protected), pool, store


def put(cache, pool, tokens, shared=()):
    """What a request does: compute `tokens` on pages of its own (after `shared`), cache them, leave. Returns its pages."""
    pages = [*shared, *pool.alloc(-(-len(tokens) // P) - len(shared))]
    for page in shared:
        pool.retain(page)
    cache.insert(token_array(tokens), pages)
    for page in pages:
        pool.release(page)
    return pages


def snapshot(cache, store, tokens, position, kind="prompt", session="s", side=False):
    state = store.reserve(side)
    if state is not None:
        store.commit(cache, token_array(tokens), position, state, kind, session, side)
    return state


@given(st.lists(st.integers(0, 1 << 31)), st.lists(st.integers(0, 1 << 31)), st.lists(st.integers(0, 9)))
def test_common_tokens_counts_whole_tokens(a, b, shared):
    for left, right in ((a, b), (shared + a, shared + b)):
        expected = next((i for i, (x, y) in enumerate(zip(left, right)) if x != y), min(len(left), len(right)))
        assert common_tokens(token_array(left).tobytes(), token_array(right).tobytes()) == expected


def test_matching_is_by_token_and_leaves_the_last_one():
    cache, pool, _ = make()
    pages = put(cache, pool, [1, 2, 3, 4, 5, 6, 7])
    whole = cache.match(token_array([1, 2, 3, 4, 5, 6, 7]))
    assert (whole.tokens, whole.resume_at, whole.pages, whole.forks) == (6, 6, pages, False)
    longer = cache.match(token_array([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert (longer.tokens, longer.resume_at, longer.pages, longer.forks) == (7, 7, pages, False)
    inside = cache.match(token_array([1, 2, 3, 9, 9, 9]))
    assert (inside.tokens, inside.resume_at, inside.pages, inside.forks) == (3, 3, pages[:1], True)
    edge = cache.match(token_array([1, 2, 3, 4, 9]))
    assert (edge.resume_at, edge.pages, edge.forks) == (4, pages[:1], True)
    other = cache.match(token_array([9, 9]))
    assert (other.resume_at, other.pages, other.forks) == (0, [], True)
    assert cache.match(token_array([1])).resume_at == 0


def test_a_growing_request_grows_its_partial_page():
    cache, pool, _ = make()
    pages = pool.alloc(1)
    for n in range(1, 5):
        cache.insert(token_array([1, 2, 3, 4][:n]), pages)
        cache.check()
        assert cache.pages == 1 and pool.refs(pages[0]) == 2


def test_the_same_prefix_computed_twice_is_kept_once():
    cache, pool, _ = make()
    first = pool.alloc(2)
    second = pool.alloc(2)
    tokens = token_array([1, 2, 3, 4, 5, 6])
    cache.insert(tokens, first)
    cache.insert(tokens, second)
    cache.check()
    assert second[0] == first[0] and second[1] != first[1], "full pages are shared, a page being written is not"
    assert cache.pages == 2 and pool.used == 3


def test_forks_inside_a_page_become_siblings():
    cache, pool, _ = make()
    put(cache, pool, [1, 2, 3, 4, 5])
    put(cache, pool, [1, 2, 9, 9, 9])
    cache.check()
    assert cache.match(token_array([1, 2, 3, 4, 5, 0])).tokens == 5
    assert cache.match(token_array([1, 2, 9, 9, 9, 0])).tokens == 5
    assert cache.match(token_array([1, 2, 0])).tokens == 2


def test_eviction_takes_the_least_recent_leaves_and_nothing_locked():
    cache, pool, _ = make()
    old = put(cache, pool, [1, 1, 1, 1, 2, 2, 2, 2])
    new = put(cache, pool, [3, 3, 3, 3])
    held = put(cache, pool, [4, 4, 4, 4])
    pool.retain(held[0])
    assert cache.evict(1) == 1 and pool.refs(old[1]) == 0 and pool.refs(old[0]) == 1
    cache.match(token_array([1, 1, 1, 1, 0]))  # makes it the newest
    assert cache.evict(1) == 1 and pool.refs(new[0]) == 0
    assert cache.evict(10) == 1 and pool.refs(old[0]) == 0
    assert pool.refs(held[0]) == 2 and cache.pages == 1 and cache.evicted_pages == 3
    cache.check()
    pool.check()


def test_hybrid_resumes_at_the_deepest_checkpoint():
    cache, pool, store = make(hybrid=True)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    pages = put(cache, pool, tokens)
    assert cache.match(token_array([*tokens, 0])).resume_at == 0
    for position in (2, 6, 9):
        snapshot(cache, store, tokens, position)
    match = cache.match(token_array([*tokens, 0]))
    assert (match.tokens, match.resume_at, match.pages) == (9, 9, pages)
    assert [c.position for c in match.line] == [2, 6, 9] and match.checkpoint is match.line[-1]
    assert cache.match(token_array(tokens)).resume_at == 6, "the last token is computed"
    inside = cache.match(token_array([1, 2, 3, 4, 5, 6, 7, 0]))
    assert (inside.tokens, inside.resume_at, inside.pages) == (7, 6, pages[:2])
    assert cache.match(token_array([1, 2, 3, 0])).resume_at == 2
    store.check()


def test_hybrid_finds_a_checkpoint_on_a_sibling_that_shares_less():
    cache, pool, store = make(hybrid=True)
    put(cache, pool, [1, 2, 3, 4])
    put(cache, pool, [1, 2, 9, 9])
    snapshot(cache, store, [1, 2, 9, 9], 2)
    match = cache.match(token_array([1, 2, 3, 4, 5]))
    assert (match.tokens, match.resume_at) == (4, 2)
    assert snapshot(cache, store, [1, 2, 3, 4], 2, "turn") is not None and len(store) == 1, "one state for both"
    cache.match(token_array([1, 2, 3, 4, 5]))
    (kept,) = (n.page for n in cache.nodes() if n.key == token_array([1, 2, 3, 4]).tobytes())
    pool.retain(kept)
    assert cache.evict(5) == 1 and len(store) == 1, "the sibling that shares its tokens takes the checkpoint over"
    pool.release(kept)
    assert cache.match(token_array([1, 2, 3, 4, 5])).resume_at == 2
    store.check()
    assert cache.evict(5) == 1 and len(store) == 0


def test_eviction_for_hybrids_takes_pages_nobody_can_resume_from_first_and_heads_last():
    cache, pool, store = make(hybrid=True)
    head = [5] * 4
    put(cache, pool, head)
    snapshot(cache, store, head, 4, "head", "main")
    put(cache, pool, [6] * 4)
    snapshot(cache, store, [6] * 4, 4, "prompt", "main")
    bare = put(cache, pool, [7] * 4)
    assert cache.evict(1) == 1 and pool.refs(bare[0]) == 0
    assert cache.evict(1) == 1 and cache.match(token_array([6, 6, 6, 6, 0])).tokens == 0
    assert len(store) == 1, "the checkpoint went with its page"
    assert cache.match(token_array([*head, 0])).resume_at == 4
    assert cache.evict(1) == 1 and len(store) == 0, "a head goes when nothing else is left"
    store.check()


class Model:
    """What must be matchable: a set of token tuples, every prefix of each."""

    def __init__(self):
        self.prefixes = {()}

    def add(self, tokens):
        self.prefixes.update(tuple(tokens[:n]) for n in range(len(tokens) + 1))

    def longest(self, tokens):
        return max(n for n in range(len(tokens) + 1) if tuple(tokens[:n]) in self.prefixes)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.tuples(st.integers(0, 100), st.lists(st.integers(0, 2), min_size=1, max_size=14)), max_size=14),
    probes=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), max_size=6),
)
def test_the_tree_matches_a_set_of_prefixes(lines, probes):
    cache, pool, _ = make(pages=400)
    model, known = Model(), [[]]
    for pick, tail in lines:
        tokens = known[pick % len(known)] + tail
        match = cache.match(token_array(tokens))
        assert match.tokens == min(model.longest(tokens), len(tokens) - 1)
        whole = match.resume_at // P
        assert len(match.pages) == -(-match.resume_at // P)
        put(cache, pool, tokens, match.pages[:whole])
        model.add(tokens)
        known.append(tokens)
        cache.check()
        pool.check()
        assert pool.used == cache.pages
    for probe in probes:
        for base in known:
            tokens = base + probe
            assert cache.match(token_array(tokens)).tokens == min(model.longest(tokens), len(tokens) - 1)
    assert cache.evict(10_000) == cache.evicted_pages
    assert cache.pages == pool.used == 0
