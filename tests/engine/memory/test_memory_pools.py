import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.arena import Arena, ArenaFull
from engine.memory.pools import PagePool, Pools, SlotPool, StatePool


@given(data=st.data())
def test_pools_share_one_arena_without_overlap(data):
    slab_bytes = data.draw(st.sampled_from([1024, 4096]))
    arena = Arena(slab_bytes, data.draw(st.integers(2, 10)))
    pages = PagePool(arena, data.draw(st.sampled_from([64, 100, 320])))
    layer_bytes = data.draw(st.lists(st.integers(1, 900), min_size=1, max_size=4))
    states = StatePool(arena, layer_bytes)
    slots = SlotPool(arena, data.draw(st.sampled_from([500, 1024])))
    pools = Pools(arena, pages, 16, states, slots)
    refs: dict[int, int] = {}
    live_states: list[int] = []
    live_slots: list[int] = []
    for action in data.draw(st.lists(st.sampled_from("PPRFSSTEEXCM"), max_size=40)):
        try:
            if action == "P":
                for page in pages.alloc(data.draw(st.integers(1, 4))):
                    assert page not in refs and page != pages.sentinel
                    refs[page] = 1
            elif action == "R" and refs:
                page = data.draw(st.sampled_from(sorted(refs)))
                pages.retain(page)
                refs[page] += 1
            elif action == "F" and refs:
                page = data.draw(st.sampled_from(sorted(refs)))
                pages.release(page)
                refs[page] -= 1
                if not refs[page]:
                    del refs[page]
            elif action == "S":
                live_states.append(states.alloc())
            elif action == "T" and live_states:
                states.release(live_states.pop(0))
            elif action == "E":
                live_slots += slots.lease(1)
            elif action == "X" and live_slots:
                slab = live_slots[0] // slots.per_slab
                slots.give_back([slab])
                live_slots = [slot for slot in live_slots if slot not in slots.slots_of(slab)]
            elif action == "C" and (live := pages.cells.live()):
                pages.cells.close(data.draw(st.sets(st.sampled_from(sorted(live)))))
            elif action == "M" and refs:
                page = data.draw(st.sampled_from(sorted(refs)))
                copied = []
                moved = pages.move(page, lambda a, b: copied.append((a, b)))
                assert copied == [(page, moved)] and moved // pages.cells.per_slab not in pages.cells.closed
                refs[moved] = refs.pop(page)
        except ArenaFull:
            pass
        pools.check()
        assert {p: pages.refs(p) for p in refs} == refs and pages.used == len(refs)
        spans = [(pages.offset(p), pages.page_bytes) for p in [*refs, pages.sentinel]]
        spans += [(o, n) for s in live_states for o, n in zip(states.offsets(s), layer_bytes, strict=True)]
        spans += [(slots.offset(s), slots.slot_bytes) for s in live_slots]
        spans.sort()
        for (start, size), (following, _) in zip(spans, [*spans[1:], (arena.bytes, 0)], strict=True):
            assert start + size <= following
            assert start // slab_bytes == (start + size - 1) // slab_bytes, "straddles a slab"
            assert start % 64 == 0


def test_emptied_slabs_go_back_to_the_arena():
    arena = Arena(1024, 4)
    pages = PagePool(arena, 256)
    taken = pages.alloc(15)
    assert arena.free_slabs == 0 and pages.free == 0
    with pytest.raises(ArenaFull):
        pages.alloc(1)
    for page in taken:
        pages.release(page)
    assert arena.free_slabs == 3  # the sentinel keeps one
    assert pages.free == pages.capacity == 15


def test_misuse_is_an_error():
    arena = Arena(1024, 4)
    pages, slots = PagePool(arena, 256), SlotPool(arena, 1024)
    (page,) = pages.alloc(1)
    pages.release(page)
    with pytest.raises(KeyError):
        pages.release(page)
    with pytest.raises(KeyError):
        pages.retain(page)
    (slot,) = slots.lease(1)
    slab = slot // slots.per_slab
    slots.give_back([slab])
    with pytest.raises(ValueError):
        slots.give_back([slab])
    with pytest.raises(ValueError):
        PagePool(arena, 1025)
