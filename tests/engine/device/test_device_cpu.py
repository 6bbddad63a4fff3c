"""The arena allocation: aligned, zeroed, and taken from the system only when touched."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.device.cpu import HUGE_PAGE_BYTES, allocate_arena, free_bytes


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_arena_is_aligned_and_lazy():
    before = _resident_bytes()
    arena = allocate_arena(1 << 30)
    assert arena.data_ptr() % HUGE_PAGE_BYTES == 0
    assert (arena.numel(), arena.dtype) == (1 << 30, torch.uint8)
    assert _resident_bytes() - before < 64 << 20
    arena[: 16 << 20] = 7
    assert _resident_bytes() - before >= 16 << 20
    assert arena[(16 << 20) - 1] == 7
    assert not arena[16 << 20 : 17 << 20].any()


def test_free_memory_is_a_plausible_number():
    assert 1 << 20 < free_bytes() < 1 << 50
