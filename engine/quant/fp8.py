"""FP8 with block scales: E4M3FN codes with an fp32 scale per 128 inputs of a row; value = scale * E4M3(code).

Kernel layout per group and 128 inputs: [16] fp32 scales, then 4 times [8][16 rows][4] codes (a 32-bit lane is four inputs of a row).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid, _small

FORMAT = "fp8"
SCALED = 128  # inputs of a row that share a scale
BLOCK_BYTES = 4 * _grid.GROUP + _grid.GROUP * SCALED

Codes = tuple[NDArray[np.float32], NDArray[np.uint8]]  # scales [n, k / 128], codes [n, k / 128, 128]


def quantise(w: NDArray[np.float32]) -> Codes:
    """Scale = largest magnitude / 448; codes = E4M3 of value / scale, to nearest even, saturating; all in fp32. k need not be a
    multiple of 128: codes are filled up with zeros."""
    full = _grid.filled(w.astype(np.float32), 0, -w.shape[1] % SCALED)
    blocks = full.reshape(len(w), -1, SCALED)
    scale = np.abs(blocks).max(axis=-1) / _small.E4M3_MAX
    return scale, _small.to_e4m3(_small.ratio(blocks, scale[..., None]))


def dequantise(codes: Codes) -> NDArray[np.float32]:
    scales, quants = codes
    values = scales[..., None] * _small.E4M3[quants]
    return values.reshape(values.shape[0], -1)


def fault(codes: Codes) -> str:
    return _small.fault(codes[0]) or ("a NaN" if _small.has_nan(codes[1]) else "")


def lay(codes: Codes) -> NDArray[np.uint8]:
    scales, quants = codes
    rows = -len(scales) % _grid.GROUP
    parts = _grid.heads(_grid.filled(scales.astype(np.float32), rows, 0)), _grid.quads(_grid.filled(quants, rows, 0))
    return np.concatenate(parts, axis=-1).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> Codes:
    groups, inputs = _grid.size(n, k, SCALED)
    blocks = data.reshape(groups, inputs // SCALED, BLOCK_BYTES)
    head = 4 * _grid.GROUP
    return _grid.unheads(blocks[..., :head], np.float32), _grid.unquads(blocks[..., head:])


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(_grid.padded(w, SCALED)))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
