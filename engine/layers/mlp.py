"""The dense gated feed-forward network."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.kernels.contract import Ops, Packed
from engine.weights.map import DenseTensor


def mlp_tensors(name: str, source: str, bias: bool = False) -> dict[str, DenseTensor]:
    """Our tensors under `name` from a checkpoint's `source` (…mlp)."""
    tensors = {
        f"{name}.gate_up": DenseTensor((f"{source}.gate_proj.weight", f"{source}.up_proj.weight")),
        f"{name}.down": DenseTensor((f"{source}.down_proj.weight",)),
    }
    if bias:
        gate_up = (f"{source}.gate_proj.bias", f"{source}.up_proj.bias")
        tensors[f"{name}.gate_up_bias"] = DenseTensor(gate_up, packed=False)
        tensors[f"{name}.down_bias"] = DenseTensor((f"{source}.down_proj.bias",), packed=False)
    return tensors


@dataclass(slots=True)
class Mlp:
    ops: Ops
    gate_up: Packed
    down: Packed
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]."""
        hidden = self.ops.silu_mul(self.ops.linear(x, self.gate_up, self.gate_up_bias))
        return self.ops.linear(hidden, self.down, self.down_bias)
