"""Whether an expert in the fast tier still has the bytes of its source."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import FtError
from engine.experts.slots import SlotTable

Checksum = Callable[[int, int], int]  # (layer, expert) -> CRC-32 at the source


class ExpertsDamaged(FtError):
    """The fast tier holds other bytes than the source: whatever is computed from now on would be wrong."""

    code = "FT-E0516 experts-damaged"


class Audit:
    """Compares one resident expert at a time, going round the slots. `slots` [capacity] i64 are their addresses."""

    def __init__(self, table: SlotTable, slots: npt.NDArray[np.int64], size_bytes: int, source: Checksum) -> None:
        self._table, self._slots, self._size, self._source = table, slots, size_bytes, source
        self._next = 0
        self.checked = 0

    def check(self) -> None:
        """Compare the next expert that lies in a slot and is not on its way. Raises ExpertsDamaged."""
        table = self._table
        whole = np.flatnonzero((table.holder >= 0) & ~table.pinned)
        if not len(whole):
            return
        slot = int(whole[np.searchsorted(whole, self._next) % len(whole)])
        self._next = slot + 1
        layer, expert = divmod(int(table.holder[slot]), table.slot_of.shape[1])
        memory = (ctypes.c_ubyte * self._size).from_address(int(self._slots[slot]))
        self.checked += 1
        if zlib.crc32(memory) != self._source(layer, expert):
            raise ExpertsDamaged(
                f"Expert {expert} of MoE layer {layer} differs between slot {slot} and its source.",
                "The memory of this machine or device may be faulty: test it, then start again with ft engine restart.",
            )
