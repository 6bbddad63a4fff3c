"""GGUF's Q8_0: signed bytes with an fp16 scale per 32 inputs of a row.

Kernel layout per group and 32 inputs: [16] fp16 scales, then [8][16 rows][4] int8 (a 32-bit lane is four inputs of a row).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid

FORMAT = "q8_0"
BLOCK_BYTES = 2 * _grid.GROUP + _grid.GROUP * _grid.BLOCK

Codes = tuple[NDArray[np.float16], NDArray[np.int8]]


def quantise(w: NDArray[np.float32]) -> Codes:
    """(scales [n, k / 32], codes [n, k / 32, 32]); halves are rounded away from zero, by the scale before it is rounded."""
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


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    full = _grid.padded(w)
    scales, quants = quantise(full)
    groups, blocks = full.shape[0] // _grid.GROUP, full.shape[1] // _grid.BLOCK
    out = np.empty((groups, blocks, BLOCK_BYTES), dtype=np.uint8)
    heads = scales.reshape(groups, _grid.GROUP, blocks).transpose(0, 2, 1)
    out[..., : 2 * _grid.GROUP] = np.ascontiguousarray(heads).view(np.uint8)
    lanes = quants.reshape(groups, _grid.GROUP, blocks, 8, 4).transpose(0, 2, 3, 1, 4)
    out[..., 2 * _grid.GROUP :] = np.ascontiguousarray(lanes).reshape(groups, blocks, -1).view(np.uint8)
    return out.reshape(-1)


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    groups, inputs = _grid.size(n, k)
    blocks = inputs // _grid.BLOCK
    whole = data.reshape(groups, blocks, BLOCK_BYTES)
    scales = np.frombuffer(whole[..., : 2 * _grid.GROUP].tobytes(), np.float16).reshape(groups, blocks, _grid.GROUP)
    quants = np.frombuffer(whole[..., 2 * _grid.GROUP :].tobytes(), np.int8).reshape(groups, blocks, 8, _grid.GROUP, 4)
    rows = quants.transpose(0, 3, 1, 2, 4).reshape(groups * _grid.GROUP, blocks, _grid.BLOCK)
    heads = scales.transpose(0, 2, 1).reshape(groups * _grid.GROUP, blocks)
    return _grid.cut(dequantise((heads, rows)), n, k)
