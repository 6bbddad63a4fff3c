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
        row_start: list[int] = [0]
        positions: list[int] = []
        ids: list[int] = []
        for s in slices:
            ids += s.tokens
            positions += range(s.start, s.start + len(s.tokens))
            row_start.append(len(ids))
        states, snapshot_seq, snapshot_rows, snapshot_states = self._state_tensors(slices)
        batch = Batch(
            arena=self._arena,
            row_start=_i32(row_start),
            positions=_i32(positions),
            start=_i32([s.start for s in slices]),
            page_offsets=torch.from_numpy(self._page_offsets(slices)),
            page_tokens=self._page_tokens,
            kv_dtype=self._kv_dtype,
            states=states,
            snapshot_seq=snapshot_seq,
            snapshot_rows=snapshot_rows,
            snapshot_states=snapshot_states,
        )
        return _i32(ids), batch

    def _page_offsets(self, slices: Sequence[Slice]) -> npt.NDArray[np.int64]:
        """PagePool.offset for whole rows of ids at once: a long sequence has thousands of pages."""
        if len(slices) == 1:
            ids = np.array([slices[0].pages], dtype=np.int64)
        else:
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
        layers = 0 if pool is None else pool.layers
        live = [[] if pool is None else pool.offsets(s.state) for s in slices]
        wanted = [(i, position - s.start, state) for i, s in enumerate(slices) for position, state in s.snapshots]
        saved = [[] if pool is None else pool.offsets(state) for _, _, state in wanted]
        return (
            _i64(live, layers),
            _i32([i for i, _, _ in wanted]),
            _i32([rows for _, rows, _ in wanted]),
            _i64(saved, layers),
        )


def _i32(values: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int32))


def _i64(rows: Sequence[Sequence[int]], width: int) -> torch.Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.int64).reshape(len(rows), width))
