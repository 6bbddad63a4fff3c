"""One model on the CPU, driven step by step: implements scheduler.step.Runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np
import torch

from engine.kernels.pages import KV_BLOCK, as_kept, by_position
from engine.layers.decoder import Decoder
from engine.memory.geometry import Geometry
from engine.memory.pools import PagePool, StatePool
from engine.runner.batch import BatchBuilder
from engine.runner.sampler import Sampler
from engine.scheduler.step import Sampled, Slice

_KV_VALUE_BYTES = {"f32": 4, "bf16": 2}


class CpuRunner:
    """`arena` is the device's one allocation, which `pages` and `states` describe; `geometry` the model's sizes."""

    def __init__(
        self,
        model: Decoder,
        geometry: Geometry,
        arena: torch.Tensor,
        pages: PagePool,
        states: StatePool | None,
        page_tokens: int,
        kv_dtype: str,
        sampler: Sampler | None = None,
    ) -> None:
        self.model, self._arena, self._pages, self._states = model, arena, pages, states
        self.batches = BatchBuilder(arena, pages, states, page_tokens, kv_dtype)
        self._sampler = sampler or Sampler()
        self._state_layer_bytes = geometry.state_layer_bytes
        self._head_dim, self._kv_heads = geometry.head_dim, geometry.kv_heads
        self._row_bytes = geometry.head_dim * _KV_VALUE_BYTES[kv_dtype]
        self._block = KV_BLOCK if kv_dtype == "bf16" else 1
        self.most_rows = 0  # of a step that succeeded
        self._page_shape = (geometry.attention_layers * 2 * geometry.kv_heads, page_tokens * self._row_bytes)

    @torch.inference_mode()
    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        """See Runner."""
        if not slices:
            return []
        ids, batch = self.batches.build(slices)
        ends = batch.row_start[1:].tolist()
        sampling = [i for i, s in enumerate(slices) if s.sample is not None]
        wanted = torch.tensor([ends[i] - 1 for i in sampling], dtype=torch.int64)
        gone: frozenset[int] = frozenset()

        def dropped() -> Sequence[int]:
            nonlocal gone
            now = aborted()
            if now:
                gone |= {i for i, s in enumerate(slices) if s.seq in now}
            return tuple(gone)

        logits = self.model.forward(ids, batch, wanted, dropped).numpy()
        if not gone:
            self.most_rows = max(self.most_rows, ids.shape[0])
        return [
            self._sampler.choose(slices[i].seq, row, spec)
            for i, row in zip((i for i in sampling if i not in gone), logits, strict=True)
            if (spec := slices[i].sample) is not None
        ]

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        """See Runner."""
        span = self._span(tokens)
        self._page(target)[..., :span] = self._page(source)[..., :span]

    def copy_state(self, source: int, target: int) -> None:
        """See Runner."""
        for from_layer, to_layer in zip(self._state(source), self._state(target), strict=True):
            to_layer.copy_(from_layer)

    def zero_state(self, target: int) -> None:
        """See Runner."""
        for layer in self._state(target):
            layer.zero_()

    def read_page(self, page: int, tokens: int) -> bytes:
        """See Runner."""
        rows = self._page(page)[..., : self._span(tokens)]
        over = -tokens % self._block
        if over and rows.numel():  # another conversation's positions go nowhere
            rows = rows.clone()
            last = rows[:, -self._span(1) :].view(torch.bfloat16).view(-1, 2, self._kv_heads, KV_BLOCK * self._head_dim)
            vectors = by_position(last, self._head_dim)
            vectors[..., -over:, :] = 0
            last.copy_(as_kept(vectors))
        return rows.numpy().tobytes()

    def write_page(self, page: int, data: bytes, tokens: int) -> None:
        """See Runner."""
        rows, span = self._page_shape[0], self._span(tokens)
        self._page(page)[..., :span] = _bytes(data, rows * span).view(rows, span)

    def read_state(self, state: int) -> bytes:
        """See Runner."""
        return b"".join(layer.numpy().tobytes() for layer in self._state(state))

    def write_state(self, state: int, data: bytes) -> None:
        """See Runner."""
        source, start = _bytes(data, sum(self._state_layer_bytes)), 0
        for layer in self._state(state):
            layer.copy_(source[start : start + len(layer)])
            start += len(layer)

    def warm_up(self, slices: list[Slice]) -> None:
        """One real forward, at whatever size the caller means to run later. Raises RuntimeError on logits that are no numbers."""
        ids, batch = self.batches.build(slices)
        wanted = torch.tensor([ids.shape[0] - 1], dtype=torch.int64)
        with torch.inference_mode():
            logits = self.model.forward(ids, batch, wanted, tuple)
        if not np.isfinite(logits.numpy()).all():
            raise RuntimeError("the first forward gave logits that are not finite")

    def _page(self, page: int) -> torch.Tensor:
        """Bytes of a page, [attention layers * 2 * kv_heads, blocks of positions end to end]."""
        offset = self._pages.offset(page)
        rows, row_bytes = self._page_shape
        return self._arena[offset : offset + rows * row_bytes].view(rows, row_bytes)

    def _span(self, tokens: int) -> int:
        """Bytes of one head's blocks that hold the first `tokens` positions."""
        return -(-tokens // self._block) * self._block * self._row_bytes

    def _state(self, state: int) -> list[torch.Tensor]:
        assert self._states is not None, "the model has no recurrent layers"
        offsets = self._states.offsets(state)
        return [self._arena[o : o + n] for o, n in zip(offsets, self._state_layer_bytes, strict=True)]


def _bytes(data: bytes, size: int) -> torch.Tensor:
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes where {size} are held")
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
