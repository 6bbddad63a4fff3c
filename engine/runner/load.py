"""From a model directory to something that runs: weights read, pools cut, model built, one real forward done.

`load` returns when all of that is done. `begin` returns once the dense weights are there: the model runs from then on, each layer
waiting for those of its experts that it needs, until `finish` finds that all have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import engine.kernels
from engine import models
from engine.device.cpu import allocate_arena
from engine.kernels.contract import Ops
from engine.memory.options import Options
from engine.memory.plan import Plan, build_pools
from engine.memory.pools import Pools
from engine.models.spec import Parts
from engine.runner.loaded import Loaded
from engine.runner.ready import Progress, finish
from engine.runner.runner import CpuRunner
from engine.runner.tiers import open_tiers
from engine.weights.background import Background
from engine.weights.config import architecture, read_config, text_config
from engine.weights.ftw import Weights, read_dense
from engine.weights.manifest import Manifest, load_manifest, remedy, verify

__all__ = ["Loaded", "begin", "finish", "load"]

EARLY = "offload"  # needs no expert but those of a step, and finds what it learnt when the choice is made


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

    What is coming is dropped when this raises. Who serves `early` while the choice of a backend is left to us does so through
    slots, until `finish` makes the choice.
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
            meanwhile = EARLY if early and coming is not None else tiers.candidates()[0]
            experts = tiers.make(meanwhile if found == "auto" else found)
        model = spec.build(Parts(config, weights.dense, ops, experts, _positions(manifest, made, pools)))
    except BaseException:
        if coming is not None:
            coming.close()
        raise
    runner = CpuRunner(model, manifest.geometry, arena, pools.pages, pools.states, pools.page_tokens, made.kv_dtype)
    loaded = Loaded(manifest, made, pools, runner, experts, arena, tiers, found, activations, coming=coming)
    if coming is None:
        finish(loaded, progress)
    return loaded


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
