"""Grouped-query attention over paged KV; optionally with per-head q/k norms, an output gate, a sliding window and sinks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.contract import Batch, Heads, Ops, Packed
from engine.layers.norm import Norm, norm_tensor
from engine.layers.rope import Rope
from engine.weights.map import DenseTensor


@dataclass(frozen=True, slots=True)
class AttentionShape:
    heads: int
    kv_heads: int
    head_dim: int
    gated: bool = False  # the query projection also yields an output gate
    normed: bool = False  # q and k pass per-head norms before the rotation
    bias: bool = False
    centred: bool = False  # the norms' stored weights are centred on zero
    window: int = 0  # keys a row sees, its own included; 0: all before it
    sinks: bool = False  # a learned logit per head joins the softmax

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def split_gate(shape: AttentionShape) -> NDArray[np.int64]:
    """The order of rows that turns [per head: query, gate], k, v into [all queries, all gates, k, v], so that each part is one
    column range."""
    queries = np.arange(2 * shape.query_width).reshape(shape.heads, 2, shape.head_dim)
    rest = 2 * shape.query_width + np.arange(2 * shape.kv_width)
    return np.concatenate([queries[:, 0].reshape(-1), queries[:, 1].reshape(-1), rest])


def attention_tensors(name: str, source: str, shape: AttentionShape) -> dict[str, DenseTensor]:
    """Our tensors under `name` from a checkpoint's `source` (…self_attn)."""
    projections = [f"{source}.{part}_proj" for part in "qkv"]
    rows = split_gate(shape) if shape.gated else None
    tensors = {
        f"{name}.qkv": DenseTensor(tuple(f"{p}.weight" for p in projections), rows=rows),
        f"{name}.out": DenseTensor((f"{source}.o_proj.weight",)),
    }
    if shape.bias:
        tensors[f"{name}.qkv_bias"] = DenseTensor(tuple(f"{p}.bias" for p in projections), packed=False, rows=rows)
        tensors[f"{name}.out_bias"] = DenseTensor((f"{source}.o_proj.bias",), packed=False)
    if shape.normed:
        for part in "qk":
            tensors[f"{name}.{part}_norm"] = norm_tensor(f"{source}.{part}_norm.weight", shape.centred)
    if shape.sinks:
        tensors[f"{name}.sinks"] = DenseTensor((f"{source}.sinks",), packed=False)
    return tensors


@dataclass(slots=True)
class Attention:
    """One attention layer; `layer` counts attention layers only."""

    ops: Ops
    layer: int
    shape: AttentionShape
    rope: Rope
    qkv: Packed
    out: Packed
    qkv_bias: torch.Tensor | None = None
    out_bias: torch.Tensor | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    sinks: torch.Tensor | None = None
    heads: Heads = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        key_column = (2 if shape.gated else 1) * shape.query_width
        self.heads = Heads(
            shape.heads, shape.kv_heads, shape.head_dim, key_column, *self.rope, q_norm=self.q_norm, k_norm=self.k_norm
        )

    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        """[M, hidden] -> [M, hidden]; writes the rows' K and V into the batch's pages."""
        ops, shape = self.ops, self.shape
        projected = ops.linear(x, self.qkv, self.qkv_bias)
        q = ops.place_heads(batch, self.layer, projected, self.heads)
        scale = shape.head_dim**-0.5
        mixed = ops.attention(batch, self.layer, q, shape.kv_heads, scale, shape.window, self.sinks)
        if shape.gated:
            gate = projected[:, shape.query_width : 2 * shape.query_width].contiguous()
            mixed = ops.sigmoid_mul(mixed, gate)
        return ops.linear(mixed, self.out, self.out_bias)
