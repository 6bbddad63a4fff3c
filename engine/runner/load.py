"""From a model directory to something that runs: weights read, pools cut, model built, one real forward done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import engine.kernels
from engine import models
from engine.device.cpu import allocate_arena, give_back, touched_bytes
from engine.experts.executor import Executor
from engine.kernels.contract import Ops
from engine.memory.hardware import forget_high_water, high_water_bytes, resident_bytes
from engine.memory.options import Options
from engine.memory.plan import Plan, build_pools, size_text
from engine.memory.pools import Pools
from engine.models.spec import Parts
from engine.runner.decide import Decision, decide
from engine.runner.runner import CpuRunner
from engine.runner.tiers import Tiers, open_tiers
from engine.scheduler.step import Slice
from engine.weights.config import architecture, read_config, text_config
from engine.weights.ftw import Weights, read_dense, read_weights
from engine.weights.manifest import Manifest, load_manifest, remedy, verify

log = logging.getLogger(__name__)

TOLERANCE = 1.05  # used over planned memory that is worth a warning

Progress = Callable[[str, int, int], None]  # (phase, done, total): bytes while loading, layers while warming


@dataclass(slots=True)
class Loaded:
    """A model ready to serve. `pools` are the bookkeeping of the runner's arena; `experts` is None for a dense model.

    `backend` is the one that runs; `decision` says how it was found, when the choice was left to us.
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
    report = progress or (lambda phase, done, total: None)
    manifest = load_manifest(directory)
    config = text_config(read_config(manifest.path(manifest.config), remedy(manifest.directory)))
    spec = models.get(architecture(config))
    ops = engine.kernels.get(kernels)
    ops.set_threads(threads)
    activations = _activations(ops, options.activations)
    weights = _read(manifest, made, lambda done, total: report("weights", done, total))
    pools = build_pools(made)
    arena = allocate_arena(pools.arena.bytes)
    tiers = open_tiers(manifest, made, options, ops, pools, arena, weights) if manifest.banks else None
    found, experts = made.moe_backend, None
    if tiers is not None:
        if made.moe_backend == "auto" and options.backend in tiers.candidates():
            found = options.backend or "auto"
        experts = tiers.make(tiers.candidates()[0] if found == "auto" else found)
    model = spec.build(Parts(config, weights.dense, ops, experts, _positions(manifest, made, pools)))
    runner = CpuRunner(model, manifest.geometry, arena, pools.pages, pools.states, pools.page_tokens, made.kv_dtype)
    loaded = Loaded(manifest, made, pools, runner, experts, arena, tiers, found, activations)
    report("warm-up", 0, 1)
    loaded.loading_bytes = high_water_bytes()
    forget_high_water()
    warm_up(loaded)
    loaded.actual_bytes = high_water_bytes() - touched_bytes(arena) + made.slabs * made.slab_bytes
    if tiers is not None and experts is not None and made.moe_backend == "auto":
        if found == "auto":
            experts.close()
            loaded.experts, loaded.decision = _decide(loaded, tiers)
        else:
            loaded.decision = Decision(found, {})
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
    return loaded


def warm_up(loaded: Loaded) -> None:
    """One real forward at full chunk size on borrowed pages. Raises RuntimeError on logits that are not finite."""
    made = loaded.plan
    rows = min(made.chunk_tokens, made.window_tokens)
    with _Borrowed(loaded, rows) as borrowed:
        loaded.runner.warm_up([borrowed.slice(0, rows)])


def _decide(loaded: Loaded, tiers: Tiers) -> tuple[Executor, Decision]:
    rows = min(loaded.plan.chunk_tokens, loaded.plan.window_tokens)
    with _Borrowed(loaded, rows) as borrowed:

        def decode(i: int) -> None:
            loaded.runner.warm_up([borrowed.slice(i % rows, 1, 7919 * i) if i else borrowed.slice(0, rows)])

        return decide(loaded.runner.model, tiers.candidates(), tiers.make, decode, tiers.device.clock)


class _Borrowed:
    """Pages and a state for a sequence that nobody asked for."""

    def __init__(self, loaded: Loaded, tokens: int) -> None:
        self._loaded, self.tokens = loaded, tokens

    def __enter__(self) -> _Borrowed:
        pools = self._loaded.pools
        self._pages = pools.pages.alloc(-(-self.tokens // pools.page_tokens))
        self._state = -1 if pools.states is None else pools.states.alloc()
        if self._state >= 0:
            self._loaded.runner.zero_state(self._state)
        return self

    def slice(self, start: int, n: int, seed: int = 0) -> Slice:
        """`n` tokens at `start`; different ones for a different seed."""
        vocab = self._loaded.manifest.geometry.vocab_size
        return Slice(-1, [(seed + token) % vocab for token in range(n)], start, self._pages, self._state)

    def __exit__(self, *failure: object) -> None:
        pools = self._loaded.pools
        for page in self._pages:
            pools.pages.release(page)
        if pools.states is not None:
            pools.states.release(self._state)


def _read(manifest: Manifest, made: Plan, progress: Callable[[int, int], None]) -> Weights:
    if made.bank == "disk":
        if not all(bank.expert_crc32 for bank in manifest.banks):  # nothing to check single experts against later
            verify(manifest.directory, progress)
        return Weights(read_dense(manifest, progress), {})
    return read_weights(manifest, progress)


def _positions(manifest: Manifest, made: Plan, pools: Pools) -> int:
    """How long a request may ever get: the model's window, or all of the arena."""
    window = min(manifest.window_tokens or manifest.geometry.max_window_tokens, manifest.geometry.max_window_tokens)
    room = pools.arena.slabs * pools.pages.cells.per_slab * pools.page_tokens
    return max(made.window_tokens, min(window, room))


def _activations(ops: Ops, asked: str) -> str:
    ops.set_activations(engine.kernels.best_activations() if asked == "auto" else asked)
    return ops.activations()
