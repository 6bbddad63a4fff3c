"""The part of the layout all formats share: rows in groups of 16, both sides padded with zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP, BLOCK = 16, 32


def padded(w: NDArray[np.float32]) -> NDArray[np.float32]:
    """[n, k] -> [n rounded up to 16, k rounded up to 32]."""
    n, k = w.shape
    out = np.zeros((-(-n // GROUP) * GROUP, -(-k // BLOCK) * BLOCK), dtype=np.float32)
    out[:n, :k] = w
    return out


def cut(full: NDArray[np.float32], n: int, k: int) -> NDArray[np.float32]:
    """The inverse of `padded`."""
    return np.ascontiguousarray(full[:n, :k])


def size(n: int, k: int) -> tuple[int, int]:
    """(groups, padded inputs) of an [n, k] matrix."""
    return -(-n // GROUP), -(-k // BLOCK) * BLOCK
