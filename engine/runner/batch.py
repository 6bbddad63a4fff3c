"""From the scheduler's slices to the tensors of one forward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from engine.kernels.contract import Batch
from engine.memory.pools import PagePool, StatePool
from engine.scheduler.step import Slice


class BatchBuilder:
    """Builds batches over one arena. `states` is None for a model without recurrent layers."""

    def __init__(
        self, arena: torch.Tensor, pages: PagePool, states: StatePool | None, page_tokens: int, kv_dtype: str
    ) -> None:
        self._arena, self._pages, self._states = arena, pages, states
        self._page_tokens, self._kv_dtype = page_tokens, kv_dtype
        cells = pages.cells
        self._cell_bytes, self._per_slab, self._slab_bytes = cells.cell_bytes, cells.per_slab, cells.arena.slab_bytes

    def build(self, slices: Sequence[Slice]) -> tuple[torch.Tensor, Batch]:
        """(token ids [M] i32, the batch). Pages beyond a sequence's own point at the sentinel page."""
        lengths = [len(s.tokens) for s in slices]
        row_start = np.zeros(len(slices) + 1, dtype=np.int32)
        np.cumsum(lengths, out=row_start[1:])
        start = np.array([s.start for s in slices], dtype=np.int32)
        first = np.repeat(start - row_start[:-1], lengths)
        positions = first + np.arange(row_start[-1], dtype=np.int32)
        ids = np.array([token for s in slices for token in s.tokens], dtype=np.int32)
        states, snapshot_seq, snapshot_rows, snapshot_states = self._state_tensors(slices)
        batch = Batch(
            arena=self._arena,
            row_start=torch.from_numpy(row_start),
            positions=torch.from_numpy(positions),
            start=torch.from_numpy(start),
            page_offsets=torch.from_numpy(self._page_offsets(slices)),
            page_tokens=self._page_tokens,
            kv_dtype=self._kv_dtype,
            states=states,
            snapshot_seq=snapshot_seq,
            snapshot_rows=snapshot_rows,
            snapshot_states=snapshot_states,
        )
        return torch.from_numpy(ids), batch

    def _page_offsets(self, slices: Sequence[Slice]) -> npt.NDArray[np.int64]:
        """PagePool.offset for whole rows of ids at once: a long sequence has thousands of pages."""
        widest = max(len(s.pages) for s in slices)
        ids = np.full((len(slices), widest), self._pages.sentinel, dtype=np.int64)
        for i, s in enumerate(slices):
            ids[i, : len(s.pages)] = s.pages
        slabs, cells = np.divmod(ids, self._per_slab)
        offsets: npt.NDArray[np.int64] = slabs * self._slab_bytes + cells * self._cell_bytes
        return offsets

    def _state_tensors(self, slices: Sequence[Slice]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Batch's states, snapshot_seq, snapshot_rows and snapshot_states."""
        pool = self._states
        wanted = [(i, position - s.start, state) for i, s in enumerate(slices) for position, state in s.snapshots]
        layers = 0 if pool is None else pool.layers
        live = [[] if pool is None else pool.offsets(s.state) for s in slices]
        saved = [[] if pool is None else pool.offsets(state) for _, _, state in wanted]
        return (
            torch.tensor(live, dtype=torch.int64).reshape(len(slices), layers),
            torch.tensor([i for i, _, _ in wanted], dtype=torch.int32),
            torch.tensor([rows for _, rows, _ in wanted], dtype=torch.int32),
            torch.tensor(saved, dtype=torch.int64).reshape(len(wanted), layers),
        )
