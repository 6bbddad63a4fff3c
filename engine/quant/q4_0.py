"""GGUF's Q4_0: 4-bit codes with an fp16 scale per 32 inputs of a row; value = scale * (code - 8).

Kernel layout per group and 32 inputs: 256 bytes of codes (`_grid.nibbles`), then [16] fp16 scales.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid, _small

FORMAT = "q4_0"
BLOCK_BYTES = _grid.CODES_4BIT_BYTES + 2 * _grid.GROUP

Codes = tuple[NDArray[np.float16], NDArray[np.uint8]]  # scales [n, k / 32], codes 0…15 [n, k / 32, 32]


def quantise(w: NDArray[np.float32]) -> Codes:
    """The value of largest magnitude (the first of equals) becomes code 0, so a scale may be negative. A code is the whole part
    of value * (1 / scale) + 8.5, each of the three operations rounded to fp32, by the scale before it is rounded to fp16."""
    blocks = w.astype(np.float32).reshape(w.shape[0], -1, _grid.BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), axis=-1)
    scale = largest / np.float32(-8)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.trunc(blocks * inverse + np.float32(8.5)).clip(0, 15)
    return scale[..., 0].astype(np.float16), codes.astype(np.uint8)


def dequantise(codes: Codes) -> NDArray[np.float32]:
    scales, quants = codes
    values = scales.astype(np.float32)[..., None] * (quants.astype(np.float32) - 8)
    return values.reshape(values.shape[0], -1)


def fault(codes: Codes) -> str:
    return _small.fault(codes[0])


def lay(codes: Codes) -> NDArray[np.uint8]:
    scales, quants = codes
    rows = -len(scales) % _grid.GROUP
    # What `quantise` makes of zeros, so that padding has the same bytes whichever way a matrix came.
    parts = _grid.nibbles(_grid.filled(quants, rows, 0, 8)), _grid.heads(_grid.filled(scales, rows, 0, -0.0))
    return np.concatenate(parts, axis=-1).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> Codes:
    groups, inputs = _grid.size(n, k)
    blocks = data.reshape(groups, inputs // _grid.BLOCK, BLOCK_BYTES)
    quants = _grid.unnibbles(blocks[..., : _grid.CODES_4BIT_BYTES])
    return _grid.unheads(blocks[..., _grid.CODES_4BIT_BYTES :], np.float16), quants


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(_grid.padded(w)))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
