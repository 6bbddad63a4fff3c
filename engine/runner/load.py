"""From a model directory to something that runs: weights read, pools cut, model built, one real forward done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import engine.kernels
from engine import models
from engine.device.cpu import allocate_arena
from engine.experts.bank import Bank
from engine.experts.executor import Executor, create
from engine.kernels.contract import Ops
from engine.memory.plan import Plan, build_pools
from engine.memory.pools import Pools
from engine.models.spec import Parts
from engine.runner.runner import CpuRunner
from engine.scheduler.step import Slice
from engine.weights.config import architecture, read_config, text_config
from engine.weights.ftw import Weights, read_weights
from engine.weights.manifest import Manifest, load_manifest

Progress = Callable[[str, int, int], None]  # (phase, done, total): bytes while loading, layers while warming


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to serve. `pools` are the bookkeeping of the runner's arena; `experts` is None for a dense model."""

    manifest: Manifest
    plan: Plan
    pools: Pools
    runner: CpuRunner
    experts: Executor | None


def load(
    directory: Path | str, made: Plan, threads: int, progress: Progress | None = None, kernels: str = "cpu"
) -> Loaded:
    """Load the model in `directory` as `made` plans it, and run one forward at full chunk size.

    `threads` are the kernels'. Raises WeightsError for bad files, Unsupported for an architecture or backend not offered.
    """
    report = progress or (lambda phase, done, total: None)
    manifest = load_manifest(directory)
    config = text_config(read_config(manifest.path(manifest.config)))
    spec = models.get(architecture(config))
    ops = engine.kernels.get(kernels)
    ops.set_threads(threads)
    weights = read_weights(manifest, lambda done, total: report("weights", done, total))
    pools = build_pools(made)
    arena = allocate_arena(pools.arena.bytes)
    experts = _experts(manifest, made, weights, ops, pools, arena) if weights.banks else None
    model = spec.build(Parts(config, weights.dense, ops, experts, made.window_tokens))
    runner = CpuRunner(model, manifest.geometry, arena, pools.pages, pools.states, pools.page_tokens, made.kv_dtype)
    loaded = Loaded(manifest, made, pools, runner, experts)
    report("warm-up", 0, 1)
    warm_up(loaded)
    report("warm-up", 1, 1)
    return loaded


def warm_up(loaded: Loaded) -> None:
    """One real forward at full chunk size on borrowed pages. Raises RuntimeError on logits that are not finite."""
    made, pools = loaded.plan, loaded.pools
    rows = min(made.chunk_tokens, made.window_tokens)
    pages = pools.pages.alloc(-(-rows // pools.page_tokens))
    state = -1 if pools.states is None else pools.states.alloc()
    try:
        if state >= 0:
            loaded.runner.zero_state(state)
        tokens = [token % loaded.manifest.geometry.vocab_size for token in range(rows)]
        loaded.runner.warm_up([Slice(-1, tokens, 0, pages, state)])
    finally:
        for page in pages:
            pools.pages.release(page)
        if pools.states is not None:
            pools.states.release(state)


def _experts(manifest: Manifest, made: Plan, weights: Weights, ops: Ops, pools: Pools, arena: torch.Tensor) -> Executor:
    geometry = manifest.geometry
    layers = [weights.banks[bank.layer] for bank in sorted(manifest.banks, key=lambda bank: bank.layer)]
    first = manifest.banks[0]
    bank = Bank(layers, geometry.hidden_size, geometry.expert_width, first.format, first.bias, first.activation)
    bank.seal()
    offsets: Sequence[int] = ()
    if pools.slots is not None:
        offsets = [pools.slots.offset(slot) for slot in pools.slots.alloc(made.moe_slots)]
    return create(made.moe_backend, ops, bank, arena, offsets, geometry.top_k)
