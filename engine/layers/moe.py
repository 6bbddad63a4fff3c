"""The Mixture-of-Experts feed-forward layer: router, routed experts, and an optional shared expert behind a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.kernels.contract import Ops, Packed
from engine.layers.mlp import Mlp


class Experts(Protocol):
    """Whatever serves routed experts, wherever they lie (engine.experts.executor)."""

    def run(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Sum of each row's experts in router order; `layer` counts MoE layers. x [M, hidden], ids and weights [M, top_k]."""


@dataclass(slots=True)
class Moe:
    """One MoE layer; `layer` counts MoE layers. With `renormalise` the chosen experts' weights sum to one."""

    ops: Ops
    layer: int
    top_k: int
    router: Packed
    experts: Experts
    shared: Mlp | None = None
    shared_gate: Packed | None = None
    router_bias: torch.Tensor | None = None
    renormalise: bool = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        logits = self.ops.linear(x, self.router, self.router_bias)
        ids, weights = self.ops.route(logits, self.top_k, self.renormalise)
        routed = self.experts.run(self.layer, x, ids, weights)
        if self.shared is None or self.shared_gate is None:
            return routed
        gate = self.ops.linear(x, self.shared_gate)
        return self.ops.sigmoid_mul(self.shared(x), gate, onto=routed)
