"""GGUF's Q8_0: signed bytes with an fp16 scale per 32 inputs of a row.

Kernel layout per group and 32 inputs: [16] fp16 scales, then [8][16 rows][4] int8 (a 32-bit lane is four inputs of a row).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid, _small

FORMAT = "q8_0"
BLOCK_BYTES = 2 * _grid.GROUP + _grid.GROUP * _grid.BLOCK

Codes = tuple[NDArray[np.float16], NDArray[np.int8]]  # scales [n, k / 32], codes [n, k / 32, 32]


def quantise(w: NDArray[np.float32]) -> Codes:
    """Halves are rounded away from zero, by the scale before it is rounded."""
    blocks = w.astype(np.float32).reshape(w.shape[0], -1, _grid.BLOCK)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    scaled = blocks * inverse
    whole = np.trunc(scaled)
    codes = whole + np.sign(scaled) * (np.abs(scaled - whole) >= 0.5)
    return scale[..., 0].astype(np.float16), codes.astype(np.int8)


def dequantise(codes: Codes) -> NDArray[np.float32]:
    scales, quants = codes
    values = scales.astype(np.float32)[..., None] * quants.astype(np.float32)
    return values.reshape(values.shape[0], -1)


def fault(codes: Codes) -> str:
    scales, quants = codes
    return _small.fault(scales) or ("the code -128, which no quantiser makes" if (quants == -128).any() else "")


def lay(codes: Codes) -> NDArray[np.uint8]:
    scales, quants = codes
    rows = -len(scales) % _grid.GROUP
    parts = _grid.heads(_grid.filled(scales, rows, 0)), _grid.quads(_grid.filled(quants, rows, 0))
    return np.concatenate(parts, axis=-1).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> Codes:
    groups, inputs = _grid.size(n, k)
    blocks = data.reshape(groups, inputs // _grid.BLOCK, BLOCK_BYTES)
    head = 2 * _grid.GROUP
    return _grid.unheads(blocks[..., :head], np.float16), _grid.unquads(blocks[..., head:]).view(np.int8)


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(_grid.padded(w)))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
