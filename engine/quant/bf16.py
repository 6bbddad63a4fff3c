"""bfloat16 weights: [group][k / 2][16 rows][even, odd input], so that a 32-bit lane is one row's pair of inputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid

FORMAT = "bf16"


def quantise(w: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of the fp32 patterns, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(w, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(w), quiet, rounded).astype(np.uint16)


def dequantise(codes: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)


def fault(codes: NDArray[np.uint16]) -> str:
    return ""


def lay(codes: NDArray[np.uint16]) -> NDArray[np.uint8]:
    full = _grid.filled(codes, -len(codes) % _grid.GROUP, -codes.shape[1] % _grid.BLOCK)
    pairs = full.reshape(-1, _grid.GROUP, full.shape[1] // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(pairs).view(np.uint8).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.uint16]:
    groups, inputs = _grid.size(n, k)
    pairs = np.ascontiguousarray(data).view(np.uint16).reshape(groups, inputs // 2, _grid.GROUP, 2)
    return pairs.transpose(0, 2, 1, 3).reshape(-1, inputs)


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(w))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
