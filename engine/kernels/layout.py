"""Kernel layouts (contract.py, Packed) of torch tensors, by the numpy definitions in engine/quant."""

from __future__ import annotations

import torch

from engine.errors import Unsupported
from engine.quant import Format, formats

from .contract import Packed, packed_bytes


def pack(weight: torch.Tensor, format: str) -> torch.Tensor:
    """[n, k] floating-point tensor -> uint8 [packed_bytes(n, k, format)]. Raises Unsupported on an unknown format."""
    return torch.from_numpy(_oracle(format).pack(weight.float().numpy()))


def unpack(weight: Packed) -> torch.Tensor:
    """The exact fp32 values of a packed matrix, [n, k]."""
    size = packed_bytes(weight.n, weight.k, weight.format)
    values = _oracle(weight.format).unpack(weight.data[:size].numpy(), weight.n, weight.k)
    return torch.from_numpy(values.copy())


def _oracle(format: str) -> Format:
    if format not in formats():
        raise Unsupported(f"no weight format called {format!r}", f"Use one of {', '.join(formats())}.")
    return formats()[format]
