"""What a model's tensors come to in given formats, from its configuration alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.kernels.contract import ExpertShape, packed_bytes
from engine.memory.geometry import Geometry
from engine.weights.convert import weight_map_of
from engine.weights.map import DenseTensor, WeightMap
from engine.weights.shapes import Shapes, dense_shapes


def expert_shape_of(weight_map: WeightMap, config: dict[str, Any], format: str) -> ExpertShape:
    """How the architecture's experts lie in memory in `format`."""
    geometry, first = weight_map.geometry, weight_map.experts[0]
    return ExpertShape(geometry.hidden_size, geometry.expert_width, format, first.bias, first.activation)


def built_shape(tensor: DenseTensor, shapes: Shapes) -> tuple[int, ...]:
    """The shape of what a map entry becomes."""
    found = [shapes[name] for name in tensor.sources]
    if tensor.build:
        return tuple(tensor.build([torch.empty(shape, device="meta") for shape in found]).shape)
    rows = sum(shape[0] for shape in found) if tensor.rows is None else len(tensor.rows)
    return (rows, *found[0][1:])


def dense_bytes(weight_map: WeightMap, shapes: Shapes, dense_format: str) -> int:
    """Bytes of the dense file."""
    total = 0
    for tensor in weight_map.dense.values():
        shape = built_shape(tensor, shapes)
        format = tensor.format or dense_format
        size = packed_bytes(shape[0], shape[1], format) if tensor.packed else 4 * math.prod(shape)
        total += -(-size // 64) * 64
    return total


def sized(geometry: Geometry, bank_stride: int, dense: int) -> Geometry:
    """`geometry` with the sizes filled in that depend on formats."""
    bank = bank_stride * geometry.experts * geometry.moe_layers
    return replace(geometry, expert_bytes=bank_stride, bank_bytes=bank, dense_bytes=dense)


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs. `token_bytes` are the weights a decode step reads; `token_flops` the operations of its matrices;
    `heads` attention heads of `head_dim` in every attention layer."""

    geometry: Geometry
    shape: ExpertShape
    token_bytes: int
    token_flops: int
    heads: int
    head_dim: int

    def attention_flops(self, tokens: int) -> int:
        """Of scores and values over a prompt of `tokens`, causal."""
        return 2 * self.geometry.attention_layers * self.heads * self.head_dim * tokens * tokens


def works_of(config: dict[str, Any], formats: Sequence[str], dense_format: str) -> dict[str, Work]:
    """Sizes and costs of a Mixture-of-Experts model by the format of its experts. Raises Unsupported for an architecture that is
    not offered."""
    weight_map, shapes = weight_map_of(config), dense_shapes(config)
    dense = dense_bytes(weight_map, shapes, dense_format)
    embedding = dense_bytes(
        replace(weight_map, dense={"embedding": weight_map.dense["embedding"]}), shapes, dense_format
    )
    read = dense - (embedding if "head" in weight_map.dense else 0)  # of the embedding a token is one row
    matrices = [built_shape(t, shapes) for name, t in weight_map.dense.items() if t.packed and name != "embedding"]
    found = {}
    for format in formats:
        shape = expert_shape_of(weight_map, config, format)
        geometry = sized(weight_map.geometry, shape.stride, dense)
        routed = geometry.moe_layers * geometry.top_k
        values = sum(n * k for n, k in matrices) + routed * 3 * shape.hidden * shape.width
        token_bytes, heads = read + routed * shape.stride, config["num_attention_heads"]
        found[format] = Work(geometry, shape, token_bytes, 2 * values, heads, geometry.head_dim)
    return found
