"""fp32 weights: [group][k][16 rows]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid

FORMAT = "f32"


def quantise(w: NDArray[np.float32]) -> NDArray[np.float32]:
    return w.astype(np.float32)


def dequantise(codes: NDArray[np.float32]) -> NDArray[np.float32]:
    return codes


def fault(codes: NDArray[np.float32]) -> str:
    return ""


def lay(codes: NDArray[np.float32]) -> NDArray[np.uint8]:
    full = _grid.padded(codes)
    groups = full.reshape(-1, _grid.GROUP, full.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(groups).view(np.uint8).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    groups, inputs = _grid.size(n, k)
    lanes = np.ascontiguousarray(data).view(np.float32).reshape(groups, inputs, _grid.GROUP)
    return lanes.transpose(0, 2, 1).reshape(-1, inputs)


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(w))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
