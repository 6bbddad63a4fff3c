"""The CPU device: one allocation for everything that changes while serving, and how much memory is left."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from dataclasses import dataclass, field

import torch

from engine.device.clock import Clock
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


def give_back(memory: torch.Tensor, start: int, size_bytes: int) -> None:
    """Let the system have the whole pages within these bytes of `memory`, which came from `allocate_arena`. They stay
    addressable and are zero when touched again. Raises OSError."""
    first = -(-(memory.data_ptr() + start) // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (memory.data_ptr() + start + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    libc = ctypes.CDLL(None, use_errno=True)
    if size > 0 and libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def touched_bytes(memory: torch.Tensor) -> int:
    """Bytes of `memory`, which came from `allocate_arena`, that the system has given us for real. Raises OSError."""
    pages = -(-memory.numel() // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(pages * mmap.PAGESIZE), found):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(torch.frombuffer(found, dtype=torch.uint8).bitwise_and(1).sum()) * mmap.PAGESIZE


def free_bytes() -> int:
    """Memory this process may still take."""
    return read_hardware().available_bytes


@dataclass(slots=True)
class Done:
    """In-place work of a device that computes where it is called."""

    start: float = field(default_factory=time.perf_counter)
    end: float = 0.0

    def computed(self) -> None:
        """See InPlaceWork."""
        self.end = time.perf_counter()

    def wait(self) -> tuple[float, float]:
        """See InPlaceWork."""
        return self.start, self.end


class CpuDevice:
    """Kernels run in the caller, so that everything is done when a call returns. Its memory is the host's."""

    name = identity = "cpu"
    fast_tier = False

    def __init__(self) -> None:
        self.clock = Clock()

    def allocate(self, size_bytes: int) -> torch.Tensor:
        """See Device."""
        return allocate_arena(size_bytes)

    def copies(self, n: int, size_bytes: int) -> None:
        """See Device."""

    def in_place(self, size_bytes: int, rows: int) -> Done:
        """See Device."""
        return Done()

    def computes(self, experts: int) -> None:
        """See Device."""

    def synchronize(self) -> float:
        """See Device."""
        return time.perf_counter()
