"""From a model directory to something that runs: weights read, pools cut, model built, one real forward done.

`load` returns when all of that is done. `begin` returns once the dense weights are there: where the backend is known, the model
runs from then on, each layer waiting for those of its experts that it needs, until `finish` finds that all have come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import engine.kernels
from engine import models
from engine.device.cpu import allocate_arena, give_back, touched_bytes
from engine.experts.executor import Executor
from engine.kernels.contract import Ops
from engine.memory.arena import ArenaFull
from engine.memory.hardware import forget_high_water, high_water_bytes, resident_bytes
from engine.memory.options import Options
from engine.memory.plan import Plan, build_pools, size_text
from engine.memory.pools import Pools
from engine.models.spec import Parts
from engine.runner.decide import Decision, decide
from engine.runner.runner import CpuRunner
from engine.runner.tiers import Tiers, open_tiers
from engine.scheduler.step import Slice
from engine.weights.background import Background
from engine.weights.config import architecture, read_config, text_config
from engine.weights.ftw import Weights, read_dense
from engine.weights.manifest import Manifest, load_manifest, remedy, verify

log = logging.getLogger(__name__)

TOLERANCE = 1.05  # used over planned memory that is worth a warning

Progress = Callable[[str, int, int], None]  # (phase, done, total): bytes while loading, layers while warming


@dataclass(slots=True)
class Loaded:
    """A model that runs. `pools` are the bookkeeping of the runner's arena; `experts` is None for a dense model.

    `backend` is the one that runs; `decision` says how it was found, when the choice was left to us. `coming` are weights
    that are still read: None once `finish` has ended, or when there are none to wait for.
    """

    manifest: Manifest
    plan: Plan
    pools: Pools
    runner: CpuRunner
    experts: Executor | None
    arena: torch.Tensor
    tiers: Tiers | None = None
    backend: str = "none"
    activations: str = "f32"
    decision: Decision | None = None
    coming: Background | None = None
    resident_bytes: int = 0
    actual_bytes: int = 0  # the peak of the first full chunk, with all of the planned arena touched
    loading_bytes: int = 0  # the peak before it

    def give_back(self, slabs: Sequence[int]) -> None:
        """Let the system have the memory of slabs that nobody holds. Raises OSError."""
        size = self.pools.arena.slab_bytes
        for slab in slabs:
            give_back(self.arena, slab * size, size)

    def report(self) -> dict[str, Any]:
        """How experts are served, and planned against used memory: plain data for statistics."""
        memory = {"planned_bytes": self.plan.total_bytes, "resident_bytes": self.resident_bytes}
        memory |= {"actual_bytes": self.actual_bytes, "loading_bytes": self.loading_bytes}
        run = {"backend": self.backend, "activations": self.activations, "memory": memory}
        if self.experts is None:
            return {**run, "slots": 0, "experts": {}}
        decision = None if self.decision is None else self.decision.report()
        details = {"decision": decision, "watch": self.experts.watch.report(), **self.experts.report()}
        every = self.backend == "fused" and self.plan.moe_slots > 0
        return {**run, "slots": self.plan.moe_slots if every else details.get("slots", 0), "experts": details}


def load(
    directory: Path | str,
    made: Plan,
    threads: int,
    progress: Progress | None = None,
    kernels: str = "cpu",
    options: Options = Options(),  # noqa: B008 - frozen
) -> Loaded:
    """Load the model in `directory` as `made` plans it, and run one forward at full chunk size.

    `threads` are the kernels'. Raises WeightsError for bad files, Unsupported for an architecture or backend not offered.
    """
    loaded = begin(directory, made, threads, progress, kernels, options, early=False)
    if loaded.coming is not None:
        loaded.coming.start()
        finish(loaded, progress)
    return loaded


def begin(
    directory: Path | str,
    made: Plan,
    threads: int,
    progress: Progress | None = None,
    kernels: str = "cpu",
    options: Options = Options(),  # noqa: B008 - frozen
    early: bool = True,
) -> Loaded:
    """As `load`, but when it returns something may be `coming`, which is to be started, and then `finish` is to be called.

    What is coming is dropped when this raises. `early` False: nothing runs before `finish`, not even to choose a backend.
    """
    report = progress or (lambda phase, done, total: None)
    manifest = load_manifest(directory)
    config = text_config(read_config(manifest.path(manifest.config), remedy(manifest.directory)))
    spec = models.get(architecture(config))
    ops = engine.kernels.get(kernels)
    ops.set_threads(threads)
    activations = _activations(ops, options.activations)
    weights, coming = _read(manifest, made, lambda done, total: report("weights", done, total))
    try:
        pools = build_pools(made)
        arena = allocate_arena(pools.arena.bytes)
        tiers = None
        if manifest.banks:
            need = _here if coming is None else coming.need
            tiers = open_tiers(manifest, made, options, ops, pools, arena, weights, need)
        found, experts = made.moe_backend, None
        if tiers is not None:
            if made.moe_backend == "auto" and options.backend in tiers.candidates():
                found = options.backend or "auto"
            experts = tiers.make(tiers.candidates()[0] if found == "auto" else found)
        model = spec.build(Parts(config, weights.dense, ops, experts, _positions(manifest, made, pools)))
    except BaseException:
        if coming is not None:
            coming.close()
        raise
    runner = CpuRunner(model, manifest.geometry, arena, pools.pages, pools.states, pools.page_tokens, made.kv_dtype)
    loaded = Loaded(manifest, made, pools, runner, experts, arena, tiers, found, activations, coming=coming)
    if coming is None:
        finish(loaded, progress)
    elif early and found == "auto":
        coming.start()
        finish(loaded, progress)
    return loaded


def finish(
    loaded: Loaded, progress: Progress | None = None, make_room: Callable[[int], object] = lambda pages: None
) -> None:
    """Return when everything has come and a forward at full chunk size has succeeded: one that was asked for, or else one
    of our own. Call between two steps; `make_room` is to free so many pages for it.

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
    if tiers is not None and loaded.experts is not None and made.moe_backend == "auto":
        if loaded.backend == "auto":
            loaded.experts.close()
            loaded.experts, loaded.decision = _decide(loaded, tiers)
        else:
            loaded.decision = Decision(loaded.backend, {})
        loaded.backend = loaded.decision.backend
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


def _decide(loaded: Loaded, tiers: Tiers) -> tuple[Executor, Decision]:
    rows = _chunk(loaded)
    with _Borrowed(loaded, rows) as borrowed:

        def decode(i: int) -> None:
            loaded.runner.warm_up([borrowed.slice(i % rows, 1, 7919 * i) if i else borrowed.slice(0, rows)])

        return decide(loaded.runner.model, tiers.candidates(), tiers.make, decode, tiers.device.clock)


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


def _read(manifest: Manifest, made: Plan, progress: Callable[[int, int], None]) -> tuple[Weights, Background | None]:
    if made.bank == "ram":
        coming = Background(manifest, progress)
        return coming.weights, coming
    if made.bank == "disk" and not all(bank.expert_crc32 for bank in manifest.banks):
        verify(manifest.directory, progress)  # nothing to check single experts against later
    return Weights(read_dense(manifest, progress), {}), None


def _here(layer: int, experts: Iterable[int]) -> None:
    """Nothing is coming."""


def _positions(manifest: Manifest, made: Plan, pools: Pools) -> int:
    """How long a request may ever get: the model's window, or all of the arena."""
    window = min(manifest.window_tokens or manifest.geometry.max_window_tokens, manifest.geometry.max_window_tokens)
    room = pools.arena.slabs * pools.pages.cells.per_slab * pools.page_tokens
    return max(made.window_tokens, min(window, room))


def _activations(ops: Ops, asked: str) -> str:
    ops.set_activations(engine.kernels.best_activations() if asked == "auto" else asked)
    return ops.activations()
