"""Batches that lose sequences."""

from __future__ import annotations

import torch

from engine.kernels.contract import Batch
from engine.layers.rows import keep_sequences


def test_keeping_sequences_renumbers_rows_and_snapshots():
    batch = Batch(
        arena=torch.zeros(8, dtype=torch.uint8),
        row_start=torch.tensor([0, 3, 4, 9], dtype=torch.int32),
        positions=torch.tensor([5, 6, 7, 40, 0, 1, 2, 3, 4], dtype=torch.int32),
        start=torch.tensor([5, 40, 0], dtype=torch.int32),
        page_offsets=torch.tensor([[1, 0], [2, 3], [4, 0]]),
        page_tokens=32,
        kv_dtype="f32",
        states=torch.tensor([[10], [20], [30]]),
        snapshot_seq=torch.tensor([0, 2, 2], dtype=torch.int32),
        snapshot_rows=torch.tensor([2, 1, 5], dtype=torch.int32),
        snapshot_states=torch.tensor([[70], [80], [90]]),
    )
    smaller, rows, wanted = keep_sequences(batch, [1, 2], torch.tensor([2, 3, 8]))
    assert rows.tolist() == [3, 4, 5, 6, 7, 8]
    assert wanted.tolist() == [0, 5]
    assert smaller.row_start.tolist() == [0, 1, 6]
    assert smaller.row_start.dtype == torch.int32
    assert smaller.positions.tolist() == [40, 0, 1, 2, 3, 4]
    assert (smaller.start.tolist(), smaller.page_offsets.tolist()) == ([40, 0], [[2, 3], [4, 0]])
    assert smaller.states.tolist() == [[20], [30]]
    assert (smaller.snapshot_seq.tolist(), smaller.snapshot_rows.tolist()) == ([1, 1], [1, 5])
    assert smaller.snapshot_states.tolist() == [[80], [90]]
    nothing, rows, wanted = keep_sequences(batch, [], torch.tensor([2, 3, 8]))
    assert (nothing.row_start.tolist(), rows.tolist(), wanted.tolist()) == ([0], [], [])
