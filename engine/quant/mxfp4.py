"""OCP MXFP4: E2M1 codes with an E8M0 scale per 32 inputs of a row; value = 2^(scale - 127) * E2M1(code).

Kernel layout per group and 32 inputs: 256 bytes of codes (`_grid.nibbles`), then [16] scale bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid, _small

FORMAT = "mxfp4"
BLOCK_BYTES = _grid.CODES_4BIT_BYTES + _grid.GROUP
_BIAS, _LARGEST_E2M1_EXPONENT, _NAN = 127, 2, 255

Codes = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # scales [n, k / 32], codes 0…15 [n, k / 32, 32]


def quantise(w: NDArray[np.float32]) -> Codes:
    """The scale's exponent is floor(log2(largest magnitude)) - 2, at least -127 (also of an all-zero block); codes are rounded
    to nearest even and saturate at 6."""
    blocks = w.astype(np.float32).reshape(w.shape[0], -1, _grid.BLOCK)
    largest = np.abs(blocks).max(axis=-1)
    exponent = np.frexp(largest)[1] - 1 - _LARGEST_E2M1_EXPONENT  # frexp's fraction lies in [0.5, 1)
    exponent = np.where(largest == 0, -_BIAS, exponent).clip(-_BIAS, _BIAS)
    codes = _small.to_e2m1(np.ldexp(blocks, -exponent[..., None]))
    return (exponent + _BIAS).astype(np.uint8), codes


def dequantise(codes: Codes) -> NDArray[np.float32]:
    scales, quants = codes
    values: NDArray[np.float32] = np.ldexp(_small.E2M1[quants], scales.astype(np.int32)[..., None] - _BIAS)
    return values.reshape(values.shape[0], -1)


def fault(codes: Codes) -> str:
    return "a scale that is NaN" if (codes[0] == _NAN).any() else ""


def lay(codes: Codes) -> NDArray[np.uint8]:
    scales, quants = codes
    rows = -len(scales) % _grid.GROUP
    parts = _grid.nibbles(_grid.filled(quants, rows, 0)), _grid.heads(_grid.filled(scales, rows, 0))
    return np.concatenate(parts, axis=-1).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> Codes:
    groups, inputs = _grid.size(n, k)
    blocks = data.reshape(groups, inputs // _grid.BLOCK, BLOCK_BYTES)
    quants = _grid.unnibbles(blocks[..., : _grid.CODES_4BIT_BYTES])
    return _grid.unheads(blocks[..., _grid.CODES_4BIT_BYTES :], np.uint8), quants


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(_grid.padded(w)))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
