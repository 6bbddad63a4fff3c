"""Cutting a step's rows into waves whose routed experts fit the slots.

A row stays whole: all its experts are in slots at once, so the kernel sums them in router order and the bits are those of
a step that needed no waves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def waves(ids: npt.NDArray[np.int32], slots: int) -> list[npt.NDArray[np.int64]]:
    """Row indices of each wave; every row in exactly one. ids [M, top_k]; needs slots >= top_k.

    Rows with the same experts share a wave. Sets are taken in sorted order and packed while their union fits.
    """
    combinations, member = np.unique(np.sort(ids, axis=1), axis=0, return_inverse=True)
    member = member.reshape(-1)
    wave_of = np.empty(len(combinations), dtype=np.int64)
    wave, union = 0, set[int]()
    for i, combination in enumerate(combinations.tolist()):
        together = union.union(combination)
        if len(together) > slots:
            wave, together = wave + 1, set(combination)
        wave_of[i], union = wave, together
    return [np.flatnonzero(wave_of[member] == w) for w in range(wave + 1)]
