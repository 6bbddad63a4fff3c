"""The CPU device: one allocation for everything that changes while serving, and how much memory is left."""

from __future__ import annotations

import ctypes
import mmap

import torch

from engine.memory.hardware import read_hardware

HUGE_PAGE_BYTES = 2 << 20


def allocate_arena(n_bytes: int) -> torch.Tensor:
    """`n_bytes` of zeroed memory as one uint8 tensor at a multiple of 2 MiB.

    Pages are only taken from the system when first touched. Raises OSError when the address space is refused.
    """
    memory = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE_BYTES
    return torch.frombuffer(memory, dtype=torch.uint8, count=n_bytes, offset=start)


def free_bytes() -> int:
    """Memory this process may still take."""
    return read_hardware().available_bytes
