"""NVFP4: E2M1 codes, an E4M3 scale per 16 inputs of a row, and an fp32 scale per row; value = row * (E4M3(scale) * E2M1(code)),
where the product in brackets is exact, so that a value is rounded once.

Kernel layout per group: [16] fp32 row scales, then per 32 inputs 256 bytes of codes (`_grid.nibbles`) and [2][16] E4M3 bytes, the
first 16 for inputs 0…15.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _grid, _small

FORMAT = "nvfp4"
BLOCK_BYTES = _grid.CODES_4BIT_BYTES + 2 * _grid.GROUP
HEADER_BYTES = 4 * _grid.GROUP
_SCALED = 16  # inputs of a row that share a scale

# row scales [n] fp32, E4M3 scales [n, k / 16], codes 0…15 [n, k / 16, 16]
Codes = tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint8]]


def quantise(w: NDArray[np.float32]) -> Codes:
    """All in fp32: row scale = largest of the row / (6 * 448); scale = E4M3 of (largest of 16 / 6 / row scale); codes = E2M1 of
    value / (row scale * scale). Rounding is to nearest even; where a scale is zero the codes are."""
    blocks = w.astype(np.float32).reshape(w.shape[0], -1, _SCALED)
    largest = np.abs(blocks).max(axis=-1)
    row = largest.max(axis=-1) / (_small.E2M1_MAX * _small.E4M3_MAX)
    scales = _small.to_e4m3(_small.ratio(largest / _small.E2M1_MAX, row[:, None]))
    codes = _small.to_e2m1(_small.ratio(blocks, (row[:, None] * _small.E4M3[scales])[..., None]))
    return row, scales, codes


def dequantise(codes: Codes) -> NDArray[np.float32]:
    row, scales, quants = codes
    values: NDArray[np.float32] = row[:, None, None] * (_small.E4M3[scales][..., None] * _small.E2M1[quants])
    return values.reshape(values.shape[0], -1)


def fault(codes: Codes) -> str:
    return _small.fault(codes[0]) or ("a scale that is NaN" if _small.has_nan(codes[1]) else "")


def lay(codes: Codes) -> NDArray[np.uint8]:
    row, scales, quants = codes
    n, sixteens = scales.shape
    rows, odd = -n % _grid.GROUP, sixteens % 2
    whole = _grid.filled(quants, rows, odd).reshape(n + rows, -1, _grid.BLOCK)
    pairs = _grid.filled(scales, rows, odd).reshape(-1, _grid.GROUP, whole.shape[1], 2).transpose(0, 2, 3, 1)
    blocks = [_grid.nibbles(whole), pairs.reshape(*pairs.shape[:2], 2 * _grid.GROUP)]
    body = np.concatenate(blocks, axis=-1).reshape(len(pairs), -1)
    header = np.pad(row.astype(np.float32), (0, rows)).view(np.uint8).reshape(-1, HEADER_BYTES)
    return np.concatenate([header, body], axis=-1).reshape(-1)


def lift(data: NDArray[np.uint8], n: int, k: int) -> Codes:
    groups, inputs = _grid.size(n, k)
    whole = data.reshape(groups, -1)
    row = np.ascontiguousarray(whole[:, :HEADER_BYTES]).view(np.float32).reshape(-1)
    blocks = whole[:, HEADER_BYTES:].reshape(groups, inputs // _grid.BLOCK, BLOCK_BYTES)
    quants = _grid.unnibbles(blocks[..., : _grid.CODES_4BIT_BYTES])
    pairs = blocks[..., _grid.CODES_4BIT_BYTES :].reshape(groups, -1, 2, _grid.GROUP).transpose(0, 3, 1, 2)
    return row, pairs.reshape(len(row), -1), quants.reshape(len(row), -1, _SCALED)


def pack(w: NDArray[np.float32]) -> NDArray[np.uint8]:
    return lay(quantise(_grid.padded(w)))


def unpack(data: NDArray[np.uint8], n: int, k: int) -> NDArray[np.float32]:
    return _grid.cut(dequantise(lift(data, n, k)), n, k)
