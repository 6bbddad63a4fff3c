"""A model that runs, with everything it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.device.cpu import give_back
from engine.experts.executor import Executor
from engine.memory.plan import Plan
from engine.memory.pools import Pools
from engine.runner.decide import Decision
from engine.runner.runner import CpuRunner
from engine.runner.tiers import Tiers
from engine.weights.background import Background
from engine.weights.manifest import Manifest


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
