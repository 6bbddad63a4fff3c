"""The decoder stack that every architecture fills: embedding, blocks of (mixer, feed-forward), final norm, head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.kernels.contract import Batch, Ops, Packed
from engine.layers.norm import Norm
from engine.layers.rows import keep_sequences


class Mixer(Protocol):
    def __call__(self, x: torch.Tensor, batch: Batch) -> torch.Tensor: ...


class FeedForward(Protocol):
    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Block:
    mixer_norm: Norm
    mixer: Mixer
    ffn_norm: Norm
    ffn: FeedForward


@dataclass(slots=True)
class Decoder:
    """A model ready to run. Every reduction over a row is an `Ops` call, so that rows never influence each other."""

    ops: Ops
    embedding: Packed
    blocks: Sequence[Block]
    norm: Norm
    head: Packed

    def forward(
        self, ids: torch.Tensor, batch: Batch, wanted: torch.Tensor, dropped: Callable[[], Sequence[int]]
    ) -> torch.Tensor:
        """Logits [surviving wanted rows, vocab] fp32 of one step, in the order of `wanted`.

        ids [M] i32; `wanted` [W] i64 are ascending row indices. `dropped` is asked before every block and returns the
        batch's sequences (indices, growing over time) that nobody waits for any more: their rows leave the computation.
        Mutates the arena: KV pages, live states and snapshots of the sequences that stay.
        """
        ops = self.ops
        gone: frozenset[int] = frozenset()
        order = list(range(batch.row_start.shape[0] - 1))
        x = ops.embedding(ids, self.embedding)
        h = ops.rmsnorm(x, *self.blocks[0].mixer_norm)
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            now = frozenset(dropped())
            if now != gone:
                kept = [i for i, sequence in enumerate(order) if sequence not in now]
                batch, rows, wanted = keep_sequences(batch, kept, wanted)
                gone, order = now, [order[i] for i in kept]
                x, h = x.index_select(0, rows), h.index_select(0, rows)
            if not order:
                break
            delta = block.mixer(h, batch)
            if index == last and wanted.shape[0] < x.shape[0]:
                x, delta = x.index_select(0, wanted), delta.index_select(0, wanted)
                if not wanted.shape[0]:
                    break
            h = ops.add_rmsnorm(x, delta, *block.ffn_norm)
            following = self.norm if index == last else self.blocks[index + 1].mixer_norm
            h = ops.add_rmsnorm(x, block.ffn(h), *following)
        if not x.shape[0]:
            return x.new_empty(0, self.head.n)
        return ops.linear(h, self.head)
