"""How a page keeps the keys and values of one attention layer (contract.Batch), for whoever looks into pages without kernels."""

from __future__ import annotations

import torch

KV_BLOCK = 16  # positions that lie together where keys and values are kept as bf16


def by_position(kept: torch.Tensor, dim: int) -> torch.Tensor:
    """[..., 2, heads, tokens * dim] as kept -> [..., 2, heads, tokens, dim]: a view of f32, a copy of bf16."""
    if kept.dtype is torch.float32:
        return kept.view(*kept.shape[:-1], -1, dim)
    keys, values = kept.unbind(-3)
    keys = keys.view(*keys.shape[:-1], -1, dim // 2, KV_BLOCK, 2).transpose(-3, -2)
    values = values.view(*values.shape[:-1], -1, KV_BLOCK // 2, dim, 2).transpose(-2, -1)
    return torch.stack([part.reshape(*part.shape[:-4], -1, dim) for part in (keys, values)], dim=-4)


def as_kept(vectors: torch.Tensor) -> torch.Tensor:
    """What `by_position` reads, [..., 2, heads, tokens, dim] -> [..., 2, heads, tokens * dim]."""
    if vectors.dtype is torch.float32:
        return vectors.flatten(-2)
    keys, values = vectors.unbind(-4)
    *heads, _, dim = keys.shape
    keys = keys.reshape(*heads, -1, KV_BLOCK, dim // 2, 2).transpose(-3, -2)
    values = values.reshape(*heads, -1, KV_BLOCK // 2, 2, dim).transpose(-2, -1)
    return torch.stack([part.flatten(-4) for part in (keys, values)], dim=-3)
