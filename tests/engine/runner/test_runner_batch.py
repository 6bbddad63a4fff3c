"""Batches say what the pools say, for any mix of slices."""

from __future__ import annotations

import torch

from engine.memory.arena import Arena
from engine.memory.pools import PagePool, StatePool
from engine.runner.batch import BatchBuilder
from engine.scheduler.step import Slice


def test_a_mixed_batch_is_laid_end_to_end():
    arena = Arena(4096, 40)
    pages, states = PagePool(arena, 1000), StatePool(arena, [512, 512, 512])
    builder = BatchBuilder(torch.zeros(arena.bytes, dtype=torch.uint8), pages, states, 16, "bf16")
    owned = [pages.alloc(3), pages.alloc(1), pages.alloc(7)]
    live, saved = [states.alloc() for _ in range(3)], [states.alloc() for _ in range(2)]
    ids, batch = builder.build(
        [
            Slice(5, [11, 12, 13], 40, owned[0], live[0], [(41, saved[0]), (43, saved[1])]),
            Slice(6, [21], 0, owned[1], live[1]),
            Slice(7, [31, 32], 100, owned[2], live[2], [(101, saved[0])]),
        ]
    )
    assert (ids.tolist(), ids.dtype) == ([11, 12, 13, 21, 31, 32], torch.int32)
    assert (batch.row_start.tolist(), batch.row_start.dtype) == ([0, 3, 4, 6], torch.int32)
    assert (batch.positions.tolist(), batch.positions.dtype) == ([40, 41, 42, 0, 100, 101], torch.int32)
    assert (batch.start.tolist(), batch.start.dtype) == ([40, 0, 100], torch.int32)
    for row, own in zip(batch.page_offsets.tolist(), owned, strict=True):
        padding = [pages.offset(pages.sentinel)] * (7 - len(own))
        assert row == [pages.offset(page) for page in own] + padding
    assert batch.states.tolist() == [states.offsets(state) for state in live]
    assert batch.snapshot_seq.tolist() == [0, 0, 2]
    assert batch.snapshot_rows.tolist() == [1, 3, 1]
    assert batch.snapshot_states.tolist() == [states.offsets(s) for s in (saved[0], saved[1], saved[0])]
    assert (batch.page_tokens, batch.kv_dtype) == (16, "bf16")


def test_a_model_without_recurrent_layers_has_empty_states():
    arena = Arena(4096, 4)
    pages = PagePool(arena, 1000)
    _, batch = BatchBuilder(torch.zeros(arena.bytes, dtype=torch.uint8), pages, None, 16, "f32").build(
        [Slice(0, [1, 2], 0, pages.alloc(1))]
    )
    assert batch.states.shape == (1, 0)
    assert batch.snapshot_states.shape == (0, 0)
