"""The real model for the worker's loop. Imports torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from engine.device.cores import claim
from engine.experts.tiered import Tiered
from engine.memory.plan import Plan
from engine.prompt.grammar import Matcher, load_tokenizer
from engine.runner.load import Loaded, begin, finish, load
from engine.scheduler.sharing import Experts
from engine.worker import Engine, Event, Progress
from engine.worker_config import WorkerConfig

log = logging.getLogger(__name__)


def load_engine(config: WorkerConfig, plan: Plan, progress: Progress, early: bool = False) -> Engine:
    """Load the model; `early`: as far as it must be for requests to run."""
    cores = claim(config.threads)
    if cores.warning:
        log.warning("%s", cores.warning)
    loaded = (begin if early else load)(config.model_dir, plan, config.threads, progress, options=config.options)
    manifest, told = loaded.manifest, Told(loaded)
    vocab_size = manifest.geometry.vocab_size

    def matcher(grammar: str) -> Matcher:
        path = manifest.path(manifest.tokenizer)
        return Matcher(load_tokenizer(path, vocab_size, manifest.eos_token_ids), grammar)

    def expert_counts() -> tuple[int, int]:
        experts = loaded.experts
        return (0, 0) if experts is None else (sum(experts.hits), sum(experts.misses))

    def report() -> dict[str, Any]:
        return {**loaded.report(), "cores": {**asdict(cores), "warning": cores.warning}}

    def listen(event: Event) -> None:
        if cores.warning:
            event("cores-shared", {"message": cores.warning})
        told.listen(event)

    def finished(make_room: Callable[[int], object]) -> Experts | None:
        before = loaded.experts
        finish(loaded, progress, make_room)
        if loaded.experts is before:
            return None
        told.watch()
        return movable(loaded)

    return Engine(
        loaded.pools,
        loaded.runner,
        vocab_size,
        matcher,
        expert_counts,
        report,
        listen,
        movable(loaded),
        loaded.give_back,
        loaded.coming,
        finished,
    )


class Told:
    """Has it told when experts become slow and when they recover, whichever serve."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._event: Event = lambda kind, fields: None

    def listen(self, event: Event) -> None:
        """`event` is told from now on."""
        self._event = event
        self.watch()

    def watch(self) -> None:
        """The experts that serve now are watched."""
        if self._loaded.experts is not None:
            watch = self._loaded.experts.watch
            watch.changed = lambda: self._event("experts-slow" if watch.slow else "experts-recovered", watch.report())


def movable(loaded: Loaded) -> Experts:
    """What of the experts may change hands while they serve: nothing where they are computed in their places."""
    experts = loaded.experts
    if not isinstance(experts, Tiered):
        return Experts()
    return Experts(
        experts, experts.curve, experts.miss_s, lambda: sum(experts.misses), lambda: experts.resident, experts.picture
    )
