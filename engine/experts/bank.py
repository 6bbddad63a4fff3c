"""The host bank: every expert of every MoE layer in memory. The source of truth, and never written after loading."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence

import torch

from engine.kernels.contract import ExpertShape

_PROT_READ, _PROT_WRITE = 1, 2


class Bank:
    """`layers` holds one uint8 tensor [experts, stride] per MoE layer, in layer order, each at a page boundary.

    `shape` says how an expert lies; `addresses[layer]` is [experts] i64: where each expert lies in memory. `need(layer,
    experts)` returns when these are there, and is called before anything reads them; it raises what kept them from coming.
    """

    def __init__(
        self,
        layers: Sequence[torch.Tensor],
        shape: ExpertShape,
        need: Callable[[int, Iterable[int]], None] = lambda layer, experts: None,
    ) -> None:
        for layer in layers:
            assert layer.dtype == torch.uint8 and layer.is_contiguous() and layer.shape[1] == shape.stride, (
                "bank layout"
            )
            assert layer.data_ptr() % mmap.PAGESIZE == 0, "bank alignment"
        self.layers = list(layers)
        self.shape = shape
        self.need = need
        self.experts = self.layers[0].shape[0]
        steps = shape.stride * torch.arange(self.experts, dtype=torch.int64)
        self.addresses = [layer.data_ptr() + steps for layer in self.layers]

    def checksum(self, layer: int) -> int:
        """CRC-32 of one layer's experts, as in the manifest."""
        self.need(layer, range(self.experts))
        return zlib.crc32(self.layers[layer].numpy().data)

    def expert_checksum(self, layer: int, expert: int) -> int:
        """CRC-32 of one expert."""
        self.need(layer, [expert])
        return zlib.crc32(self.layers[layer][expert].numpy().data)

    def seal(self) -> None:
        """Every expert is there, so take away write permission: a stray write ends the process instead of changing answers. Raises OSError."""
        ranges = [(layer.data_ptr(), layer.numel()) for layer in self.layers]
        _protect(ranges, _PROT_READ)
        # The allocator writes into what it gets back, so the permission must return before the memory does.
        weakref.finalize(self, _protect, ranges, _PROT_READ | _PROT_WRITE)


def _protect(ranges: list[tuple[int, int]], permission: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for address, n_bytes in ranges:
        whole_pages = n_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(whole_pages), permission):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
