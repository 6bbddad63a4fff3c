"""What comes between the last weights and "ready": one real forward at full chunk size, and the choice of a backend."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.device.cpu import touched_bytes
from engine.experts.tiered import Tiered
from engine.memory.arena import ArenaFull
from engine.memory.hardware import forget_high_water, high_water_bytes, resident_bytes
from engine.memory.plan import size_text
from engine.runner.decide import Decision, decide
from engine.runner.loaded import Loaded
from engine.runner.tiers import Tiers
from engine.scheduler.step import Slice

log = logging.getLogger(__name__)

TOLERANCE = 1.05  # used over planned memory that is worth a warning

Progress = Callable[[str, int, int], None]  # (phase, done, total): bytes while loading, layers while warming


def finish(
    loaded: Loaded, progress: Progress | None = None, make_room: Callable[[int], object] = lambda pages: None
) -> None:
    """Return when everything has come, a forward at full chunk size has succeeded, one that was asked for or else one of our own,
    and a backend is chosen where that was left to us. Then `loaded.experts` are others than before. Call between two steps;
    `make_room` is to free so many pages for what we compute.

    Raises WeightsError for what cannot be read, RuntimeError on logits that are not finite, and ArenaFull when those who run
    hold everything that the forward needs: try again later.
    """
    report = progress or (lambda phase, done, total: None)
    made, pools, tiers, arena = loaded.plan, loaded.pools, loaded.tiers, loaded.arena
    if loaded.coming is not None:
        loaded.coming.wait()
        loaded.coming = None
        if tiers is not None and tiers.bank is not None:
            tiers.bank.seal()
    report("warm-up", 0, 1)
    if not loaded.loading_bytes:
        loaded.loading_bytes = high_water_bytes()
    if loaded.runner.most_rows < _chunk(loaded):
        forget_high_water()
        warm_up(loaded, make_room)
    loaded.actual_bytes = high_water_bytes() - touched_bytes(arena) + made.slabs * made.slab_bytes
    if tiers is not None and made.moe_backend == "auto":
        if loaded.backend == "auto":
            _choose(loaded, tiers, make_room)
        else:
            loaded.decision = Decision(loaded.backend, {})
        if loaded.backend == "cpu" and pools.slots is not None:
            pools.slots.give_back(pools.arena.held("experts"))
            pools.arena.set_limit("experts", 0)
    loaded.resident_bytes = resident_bytes()
    log.info(
        "the first forward takes %s with all it may use later; the plan has %s",
        size_text(loaded.actual_bytes),
        size_text(made.total_bytes),
    )
    if loaded.actual_bytes > made.total_bytes * TOLERANCE:
        log.warning("that is %s more than planned", size_text(loaded.actual_bytes - made.total_bytes))
    report("warm-up", 1, 1)


def warm_up(loaded: Loaded, make_room: Callable[[int], object] = lambda pages: None) -> None:
    """One real forward at full chunk size on borrowed pages. Raises RuntimeError on logits that are not finite."""
    rows = _chunk(loaded)
    with _Borrowed(loaded, rows, make_room) as borrowed:
        loaded.runner.warm_up([borrowed.slice(0, rows)])


def _chunk(loaded: Loaded) -> int:
    return min(loaded.plan.chunk_tokens, loaded.plan.window_tokens)


def _choose(loaded: Loaded, tiers: Tiers, make_room: Callable[[int], object]) -> None:
    """Have the quickest backend serve experts from now on, in the slots that they have by now; it counts on. What the slots held is
    forgotten. Raises ArenaFull before anything is tried."""
    before, pools, rows = loaded.experts, loaded.pools, _chunk(loaded)
    assert before is not None
    with _Borrowed(loaded, rows, make_room) as borrowed:

        def decode(i: int) -> None:
            loaded.runner.warm_up([borrowed.slice(i % rows, 1, 7919 * i) if i else borrowed.slice(0, rows)])

        before.close()
        if pools.slots is not None:
            tiers.leased = sorted(s for slab in pools.arena.held("experts") for s in pools.slots.slots_of(slab))
        made = decide(loaded.runner.model, tiers.candidates(), tiers.make, decode, tiers.device.clock)
    loaded.experts, loaded.decision = made
    loaded.backend = loaded.decision.backend
    for now, so_far in ((loaded.experts.hits, before.hits), (loaded.experts.misses, before.misses)):
        now[:] = [a + b for a, b in zip(now, so_far, strict=True)]
    if isinstance(before, Tiered) and isinstance(loaded.experts, Tiered):
        loaded.experts.curve = before.curve


class _Borrowed:
    """Pages and a state for a sequence that nobody asked for. Entering raises ArenaFull."""

    def __init__(self, loaded: Loaded, tokens: int, make_room: Callable[[int], object] = lambda pages: None) -> None:
        self._loaded, self.tokens, self._make_room = loaded, tokens, make_room

    def __enter__(self) -> _Borrowed:
        pools = self._loaded.pools
        pages = -(-self.tokens // pools.page_tokens)
        if pools.pages.free < pages:
            self._make_room(pages - pools.pages.free)
        self._pages = pools.pages.alloc(pages)
        try:
            self._state = -1 if pools.states is None else pools.states.alloc()
        except ArenaFull:
            self._return_pages()
            raise
        if self._state >= 0:
            self._loaded.runner.zero_state(self._state)
        return self

    def slice(self, start: int, n: int, seed: int = 0) -> Slice:
        """`n` tokens at `start`; different ones for a different seed."""
        vocab = self._loaded.manifest.geometry.vocab_size
        return Slice(-1, [(seed + token) % vocab for token in range(n)], start, self._pages, self._state)

    def __exit__(self, *failure: object) -> None:
        self._return_pages()
        if self._loaded.pools.states is not None:
            self._loaded.pools.states.release(self._state)

    def _return_pages(self) -> None:
        for page in self._pages:
            self._loaded.pools.pages.release(page)
