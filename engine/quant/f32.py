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


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    full = _grid.padded(w)
    groups = full.reshape(-1, _grid.GROUP, full.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(groups).view(np.uint8).reshape(-1)


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    groups, inputs = _grid.size(n, k)
    lanes = np.frombuffer(data.tobytes(), np.float32).reshape(groups, inputs, _grid.GROUP)
    return _grid.cut(lanes.transpose(0, 2, 1).reshape(-1, inputs), n, k)
