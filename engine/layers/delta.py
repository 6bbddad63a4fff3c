"""Gated DeltaNet: a linear-attention layer with a recurrent state and a short convolution (arXiv 2412.06464)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.kernels.contract import Batch, Ops, Packed
from engine.layers.norm import Norm
from engine.weights.map import DenseTensor


@dataclass(frozen=True, slots=True)
class DeltaShape:
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv_width: int

    @property
    def key_width(self) -> int:
        return self.k_heads * self.k_dim

    @property
    def value_width(self) -> int:
        return self.v_heads * self.v_dim

    @property
    def channels(self) -> int:
        return 2 * self.key_width + self.value_width

    @property
    def recurrent_bytes(self) -> int:
        return 4 * self.v_heads * self.k_dim * self.v_dim

    @property
    def state_bytes(self) -> int:
        """Recurrent state and convolution window of one sequence in one layer."""
        return self.recurrent_bytes + 4 * (self.conv_width - 1) * self.channels


def _decay(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return -tensors[0].exp()


def _window(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensors[0].squeeze(1)


def delta_tensors(name: str, source: str) -> dict[str, DenseTensor]:
    """Our tensors under `name` from a checkpoint's `source` (…linear_attn)."""
    return {
        f"{name}.qkvz": DenseTensor((f"{source}.in_proj_qkv.weight", f"{source}.in_proj_z.weight")),
        f"{name}.ba": DenseTensor((f"{source}.in_proj_b.weight", f"{source}.in_proj_a.weight"), format="f32"),
        f"{name}.conv": DenseTensor((f"{source}.conv1d.weight",), packed=False, build=_window),
        f"{name}.decay": DenseTensor((f"{source}.A_log",), packed=False, build=_decay),
        f"{name}.dt_bias": DenseTensor((f"{source}.dt_bias",), packed=False),
        f"{name}.norm": DenseTensor((f"{source}.norm.weight",), packed=False),
        f"{name}.out": DenseTensor((f"{source}.out_proj.weight",)),
    }


@dataclass(slots=True)
class DeltaNet:
    """One linear-attention layer; `layer` counts linear layers only."""

    ops: Ops
    layer: int
    shape: DeltaShape
    qkvz: Packed
    ba: Packed
    conv: torch.Tensor  # [channels, width]
    decay: torch.Tensor  # [v_heads], -exp(A_log)
    dt_bias: torch.Tensor
    norm: Norm
    out: Packed

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]; advances the batch's live states and writes its snapshots."""
        ops, shape, rows = self.ops, self.shape, x.shape[0]
        qkv, z = (
            p.contiguous()
            for p in ops.linear(x, self.qkvz).split_with_sizes([shape.channels, shape.value_width], dim=1)
        )
        g, beta = ops.delta_gates(ops.linear(x, self.ba), self.decay, self.dt_bias)
        mixed = ops.conv(batch, self.layer, qkv, self.conv, shape.recurrent_bytes)
        widths = [shape.key_width, shape.key_width, shape.value_width]
        q, k, v = (p.contiguous() for p in mixed.split_with_sizes(widths, dim=1))
        q, k = q.view(rows, shape.k_heads, shape.k_dim), k.view(rows, shape.k_heads, shape.k_dim)
        y = ops.delta_rule(batch, self.layer, q, k, v.view(rows, shape.v_heads, shape.v_dim), g, beta)
        y = ops.gated_rmsnorm(y.reshape(-1, shape.v_dim), z.view(-1, shape.v_dim), *self.norm)
        return ops.linear(y.view(rows, shape.value_width), self.out)
