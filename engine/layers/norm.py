"""RMS norms: a weight with its epsilon, and the form whose stored weight is centred on zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.weights.map import DenseTensor


class Norm(NamedTuple):
    """`weight` [n] fp32, with any one already added."""

    weight: torch.Tensor
    eps: float


def plus_one(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The factor of a norm that multiplies by 1 + w."""
    return 1.0 + tensors[0]


def norm_tensor(source: str, centred: bool = False) -> DenseTensor:
    """How a norm is stored; `centred` norms multiply by 1 + w."""
    return DenseTensor((source,), packed=False, build=plus_one if centred else None)
