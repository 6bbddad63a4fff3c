"""Taking sequences out of a step that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.kernels.contract import Batch


def keep_sequences(batch: Batch, kept: Sequence[int], wanted: torch.Tensor) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """(the batch with only the `kept` sequences, the row indices that stay, `wanted` renumbered to them).

    `kept` are ascending sequence indices of `batch`; `wanted` [W] ascending row indices. Shares the arena, copies the rest.
    """
    sequences = torch.tensor(kept, dtype=torch.int64)
    lengths = (batch.row_start[1:] - batch.row_start[:-1]).index_select(0, sequences)
    row_start = torch.zeros(len(kept) + 1, dtype=torch.int32)
    row_start[1:] = lengths.cumsum(0)
    stays = torch.zeros(batch.positions.shape[0], dtype=torch.bool)
    bounds = batch.row_start.tolist()
    for sequence in kept:
        stays[bounds[sequence] : bounds[sequence + 1]] = True
    rows = stays.nonzero().flatten()
    renumbered = stays.cumsum(0) - 1

    number = torch.full((batch.start.shape[0],), -1, dtype=torch.int32)
    number[sequences] = torch.arange(len(kept), dtype=torch.int32)
    snapshots = (number[batch.snapshot_seq.long()] >= 0).nonzero().flatten()
    smaller = replace(
        batch,
        row_start=row_start,
        positions=batch.positions.index_select(0, rows),
        start=batch.start.index_select(0, sequences),
        page_offsets=batch.page_offsets.index_select(0, sequences),
        states=batch.states.index_select(0, sequences),
        snapshot_seq=number[batch.snapshot_seq.index_select(0, snapshots).long()],
        snapshot_rows=batch.snapshot_rows.index_select(0, snapshots),
        snapshot_states=batch.snapshot_states.index_select(0, snapshots),
        extra={},
    )
    return smaller, rows, renumbered[wanted[stays[wanted]]]
