"""Rotary position embeddings: frequencies as published checkpoints declare them, and the tables the kernels read.

All scalings here are static: the frequencies never depend on the current length, so a key rotated once stays valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from engine.errors import Unsupported
from engine.weights.config import rope_parameters


class Rope(NamedTuple):
    """`cos`, `sin` [positions, rotary/2] fp32."""

    cos: torch.Tensor
    sin: torch.Tensor


def frequencies(config: Mapping[str, Any], head_dim: int) -> tuple[torch.Tensor, float]:
    """(inverse frequencies [rotary/2] fp32, factor on cos and sin). Raises Unsupported on an unknown scaling."""
    rope = rope_parameters(dict(config))
    dim = int(head_dim * rope["partial_rotary_factor"])
    powers = rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    kind = rope["rope_type"]
    if kind == "default":
        return 1.0 / powers, 1.0
    if kind == "yarn":
        return _yarn(rope, powers, dim, int(config["max_position_embeddings"]))
    if kind == "divided":
        return 1.0 / (powers * torch.tensor(rope["factors"], dtype=torch.float32)), 1.0
    if kind == "llama3":
        return _llama3(rope, 1.0 / powers), 1.0
    raise Unsupported(
        f"Rope scaling '{kind}' is not offered.", "Use a checkpoint with default, yarn, llama3 or divided scaling."
    )


def _yarn(rope: dict[str, Any], powers: torch.Tensor, dim: int, window: int) -> tuple[torch.Tensor, float]:
    """YaRN (arXiv 2309.00071): fast dimensions keep their frequency, slow ones are interpolated, a ramp between."""
    original = rope["original_max_position_embeddings"]
    factor = rope.get("factor") or window / original
    theta = rope["rope_theta"]

    def dimension(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    keep = 1 - ramp
    inverse = (1.0 / (factor * powers)) * (1 - keep) + (1.0 / powers) * keep
    return inverse, _yarn_factor(rope, factor)


def _yarn_factor(rope: dict[str, Any], factor: float) -> float:
    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return scale(1.0)


def _llama3(rope: dict[str, Any], inverse: torch.Tensor) -> torch.Tensor:
    """Llama 3.1: wavelengths beyond the original window are stretched, with a smooth band between the two bounds."""
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    wavelength = 2 * math.pi / inverse
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * inverse / factor + smooth * inverse
    stretched = torch.where(wavelength > original / low, inverse / factor, inverse)
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return torch.where(between, blended, stretched)


def table(config: Mapping[str, Any], head_dim: int, positions: int) -> Rope:
    """The table for positions [0, positions)."""
    inverse, factor = frequencies(config, head_dim)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse[None, :]
    return Rope((angles.cos() * factor).contiguous(), (angles.sin() * factor).contiguous())
