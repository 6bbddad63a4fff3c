"""The part of the layout all formats share: rows in groups of 16, both sides padded with zeros, codes in 32-bit lanes of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUP, BLOCK = 16, 32
CODES_4BIT_BYTES = GROUP * BLOCK // 2


def padded(w: NDArray[np.float32], block: int = BLOCK) -> NDArray[np.float32]:
    """[n, k] -> [n rounded up to 16, k rounded up to `block`]."""
    return filled(w.astype(np.float32), *((-size) % to for size, to in zip(w.shape, (GROUP, block), strict=True)))


def filled(codes: NDArray[Any], rows: int, columns: int, value: Any = 0) -> NDArray[Any]:
    """`codes` [n, m, ...] with `rows` and `columns` more, all of them `value`."""
    if not rows and not columns:
        return codes
    return np.pad(codes, [(0, rows), (0, columns), *[(0, 0)] * (codes.ndim - 2)], constant_values=value)


def cut(full: NDArray[np.float32], n: int, k: int) -> NDArray[np.float32]:
    """The inverse of `padded`."""
    return np.ascontiguousarray(full[:n, :k])


def size(n: int, k: int, block: int = BLOCK) -> tuple[int, int]:
    """(groups, padded inputs) of an [n, k] matrix."""
    return -(-n // GROUP), -(-k // block) * block


def heads(values: NDArray[Any]) -> NDArray[np.uint8]:
    """One value per (row, block), [groups * 16, blocks] -> [groups, blocks, 16 rows as bytes]."""
    lanes = values.reshape(-1, GROUP, values.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(lanes).view(np.uint8)


def unheads(data: NDArray[np.uint8], dtype: Any) -> NDArray[Any]:
    """The inverse of `heads`."""
    lanes = np.ascontiguousarray(data).view(dtype)
    return np.ascontiguousarray(lanes.transpose(0, 2, 1)).reshape(-1, lanes.shape[1])


def nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """4-bit codes [groups * 16, blocks, 32] -> [groups, blocks, 256]: four vectors of 16 lanes; vector j holds inputs 8j…8j+7,
    lane r is row r; bits 4i are input 8j+2i, bits 16+4i input 8j+2i+1."""
    rows, blocks, _ = codes.shape
    eights = np.ascontiguousarray(codes).view(np.uint64)  # [rows, blocks, 4], input 8j + i in bits 8i
    lanes = _every_second(eights) | (_every_second(eights >> np.uint64(8)) << np.uint64(16))
    groups = lanes.astype(np.uint32).reshape(rows // GROUP, GROUP, blocks, 4).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(groups).view(np.uint8).reshape(-1, blocks, CODES_4BIT_BYTES)


def _every_second(eights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The 4-bit codes in bits 0, 16, 32 and 48, moved to bits 0, 4, 8 and 12."""
    spread = eights & np.uint64(0x000F000F000F000F)
    pairs = (spread | (spread >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
    return (pairs | (pairs >> np.uint64(24))) & np.uint64(0xFFFF)


def unnibbles(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `nibbles`."""
    groups, blocks, _ = data.shape
    lanes = data.reshape(groups, blocks, 4, GROUP, 2, 2).transpose(0, 3, 1, 2, 5, 4)
    codes = np.stack([lanes & np.uint8(15), lanes >> np.uint8(4)], axis=-2)
    return codes.reshape(groups * GROUP, blocks, BLOCK)


def quads(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """8-bit codes [groups * 16, blocks, inputs] -> [groups, blocks, inputs / 4 lanes of four inputs, 16 rows]."""
    rows, blocks, inputs = codes.shape
    lanes = codes.reshape(rows // GROUP, GROUP, blocks, inputs // 4, 4).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(rows // GROUP, blocks, GROUP * inputs)


def unquads(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `quads`."""
    groups, blocks, n_bytes = data.shape
    lanes = data.reshape(groups, blocks, n_bytes // (4 * GROUP), GROUP, 4).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(lanes).reshape(groups * GROUP, blocks, n_bytes // GROUP)
