"""The leaf operations of a model, as every backend provides them.

`engine.kernels.get("cpu")` (C++) and `engine.kernels.get("reference")` (plain torch) return an object with these methods.
Activations are contiguous fp32 CPU tensors. **Row invariance**: what a row yields never depends on how many other rows
share the call; reductions run along K in one fixed order. Every method releases the GIL and uses the process-wide thread
pool (`set_threads`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

FORMATS = ("f32", "bf16", "q8_0", "q4_0", "mxfp4", "nvfp4", "fp8")
ACTIVATIONS = ("f32", "bf16")
EXPERT_ACTIVATIONS = ("silu", "swiglu_oai")


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight matrix [n, k] in kernel layout. `data` is a 64-byte-aligned uint8 tensor; it may be a view into a bank.

    Layout: output rows in groups of 16, group by group, rows padded with zeros to a multiple of 16; k padded with zeros to a
    multiple of 32 (fp8: 128). f32: [k][16] floats. bf16: [k/2][16][2], so that a 32-bit lane is one row's (even, odd) pair.
    q8_0: per 32 inputs [16] fp16 scales, then [32/4][16][4] int8 (a 32-bit lane is four consecutive inputs of one row).
    4-bit codes of 32 inputs are four vectors of 16 lanes; vector j holds inputs 8j..8j+7, lane r is row r, bits 4i..4i+3 are
    input 8j+2i and bits 16+4i..16+4i+3 input 8j+2i+1. q4_0: per 32 inputs the codes, then [16] fp16 scales; value = scale *
    (code - 8). mxfp4: per 32 inputs the codes, then [16] bytes E8M0; value = 2^(scale - 127) * E2M1(code). nvfp4: [16] fp32 row
    scales, then per 32 inputs the codes and [2][16] bytes E4M3, one per 16 inputs; value = row scale * E4M3(scale) *
    E2M1(code). fp8: per 128 inputs [16] fp32 scales, then four times q8_0's codes as E4M3; value = scale * E4M3(code).
    engine/quant defines them all in numpy.
    """

    data: torch.Tensor
    format: str
    n: int
    k: int


# Of a group of 16 rows: inputs of a block, its bytes, and bytes before the first block.
_BLOCKS = {
    "f32": (32, 2048, 0),
    "bf16": (32, 1024, 0),
    "q8_0": (32, 544, 0),
    "q4_0": (32, 288, 0),
    "mxfp4": (32, 272, 0),
    "nvfp4": (32, 288, 64),
    "fp8": (128, 2112, 0),
}


def packed_bytes(n: int, k: int, format: str) -> int:
    """Bytes of an [n, k] matrix in kernel layout."""
    inputs, size, header = _BLOCKS[format]
    return -(-n // 16) * (header + -(-k // inputs) * size)


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """One expert of a bank: gate_up, a [2*width, hidden] matrix with the gate rows first, at offset 0; down, [hidden, width], at
    `down_offset`; with `bias`, fp32 [2*width] gate and up biases and then fp32 [hidden] down biases at `bias_offset`.

    `stride` is a multiple of 4096, so that every expert can be read with direct I/O.
    `activation` is "silu" (silu(gate) * up) or "swiglu_oai" (gate at most 7, up within +-7: (up + 1) * gate * sigmoid(1.702 * gate)).
    """

    hidden: int
    width: int
    format: str
    bias: bool = False
    activation: str = "silu"

    @property
    def down_offset(self) -> int:
        return _aligned(packed_bytes(2 * self.width, self.hidden, self.format), 64)

    @property
    def bias_offset(self) -> int:
        return _aligned(self.down_offset + packed_bytes(self.hidden, self.width, self.format), 64)

    @property
    def stride(self) -> int:
        return _aligned(self.bias_offset + (4 * (2 * self.width + self.hidden) if self.bias else 0), 4096)


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@dataclass(frozen=True, slots=True)
class Heads:
    """How a projection's columns divide into heads, and what becomes of them before attention.

    Queries fill the first `heads * head_dim` columns; keys begin at `key_column`, values follow them. `cos`, `sin`
    [max_positions, rotary/2] rotate half-split (neox) pairs in the first `rotary` values of a head. Norms are (weight
    [head_dim], eps) of an RMS norm over each head.
    """

    heads: int
    kv_heads: int
    head_dim: int
    key_column: int
    cos: torch.Tensor
    sin: torch.Tensor
    q_norm: tuple[torch.Tensor, float] | None = None
    k_norm: tuple[torch.Tensor, float] | None = None


@dataclass(slots=True)
class Batch:
    """The rows of one step: slices laid end to end. M rows, S sequences.

    `row_start` [S+1] i32 (cumulative rows), `positions` [M] i32 (absolute), `start` [S] i32 (position of the first row),
    `page_offsets` [S, P] i64 (byte offset of each KV page in the arena), `states` [S, linear layers] i64 (byte offset of
    each layer's live state in the arena), `snapshots`: list over (sequence, rows of that sequence absorbed, [linear layers]
    i64 byte offsets). `arena` is the device's one uint8 allocation. A page holds, per attention layer,
    [2 (k, v)][kv_heads] and then, in f32, [page_tokens][head_dim]; in bf16, where page_tokens is a multiple of 16 and head_dim
    is even, blocks of 16 positions as attention multiplies them: keys [head_dim / 2][16 positions][2], values
    [8 pairs of positions][head_dim][2]. A linear layer's state is [v_heads][k_dim][v_dim] fp32
    followed by its convolution window [width-1][channels] fp32 (oldest first).
    """

    arena: torch.Tensor
    row_start: torch.Tensor
    positions: torch.Tensor
    start: torch.Tensor
    page_offsets: torch.Tensor
    page_tokens: int
    kv_dtype: str  # f32 | bf16
    states: torch.Tensor
    snapshot_seq: torch.Tensor  # [C] i32
    snapshot_rows: torch.Tensor  # [C] i32
    snapshot_states: torch.Tensor  # [C, linear layers] i64
    extra: dict[str, object] = field(default_factory=dict)


class Ops(Protocol):
    def pack(self, weight: torch.Tensor, format: str) -> torch.Tensor:
        """[n, k] float tensor -> uint8 tensor in kernel layout (see Packed). q8_0 rounds like GGUF's Q8_0."""

    def unpack(self, weight: Packed) -> torch.Tensor:
        """The exact fp32 values the kernels multiply with, [n, k]."""

    def linear(self, x: torch.Tensor, weight: Packed, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[M, k] -> [M, n]."""

    def embedding(self, ids: torch.Tensor, weight: Packed) -> torch.Tensor:
        """[M] i32 -> [M, k]: rows of the packed table, so that a tied table is held once."""

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Over the last dimension. For (1 + w) norms the model adds the one when it loads."""

    def add_rmsnorm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """residual += delta in place; returns its norm."""

    def gated_rmsnorm(self, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """rmsnorm(x) * weight * silu(gate) over the last dimension."""

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[M, 2*w] (gate first) -> silu(gate) * up, [M, w]."""

    def sigmoid_mul(self, x: torch.Tensor, gate: torch.Tensor, onto: torch.Tensor | None = None) -> torch.Tensor:
        """x * sigmoid(gate); gate has x's shape or one column. With `onto` the products are added to it, and it is returned."""

    def place_heads(self, batch: Batch, layer: int, projected: torch.Tensor, heads: Heads) -> torch.Tensor:
        """From a projection [M, columns] to rotated queries [M, heads, head_dim]; keys, rotated too, and values are stored at the
        rows' positions. Heads are normalised before the rotation where `heads` has norms. `layer` counts attention layers."""

    def attention(
        self,
        batch: Batch,
        layer: int,
        q: torch.Tensor,
        kv_heads: int,
        scale: float,
        window: int = 0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal paged attention of [M, heads, head_dim] over each row's own sequence (after place_heads) -> [M, heads*head_dim].
        With a window the row at position p sees keys p-window+1..p, and pages before them are not read; `sinks` [heads] join
        the softmax's denominator. Keys are visited in blocks at absolute positions, so chunking never changes bits."""

    def conv(self, batch: Batch, layer: int, x: torch.Tensor, weight: torch.Tensor, state_offset: int) -> torch.Tensor:
        """Causal depthwise convolution + silu. x [M, channels], weight [channels, width] fp32; the window lies
        `state_offset` bytes into the layer's state; it is advanced, and stored at snapshots. `layer` counts linear layers."""

    def delta_gates(
        self, ba: torch.Tensor, decay: torch.Tensor, dt_bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log decay, beta), each [M, v_heads], from the projection [M, 2 * v_heads], beta's half first: decay [v_heads] *
        softplus(. + dt_bias [v_heads]), and sigmoid."""

    def delta_rule(
        self,
        batch: Batch,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
    ) -> torch.Tensor:
        """Gated delta rule, token-sequential, fp32. q, k [M, k_heads, k_dim] (L2-normalised here, eps 1e-6, q scaled by
        k_dim**-0.5), v [M, v_heads, v_dim], g (log decay) and beta [M, v_heads] -> [M, v_heads, v_dim]. The state is advanced
        in place and stored at snapshots."""

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """softmax over [M, E], then the top_k: (ids [M, top_k] i32, weights [M, top_k] f32), largest first, ties to the lower id."""

    def experts(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        addresses: torch.Tensor,
        shape: ExpertShape,
    ) -> torch.Tensor:
        """Routed experts, [M, hidden] -> [M, hidden]: `combine` of every row's `expert_outputs`, bit for bit. `addresses` [E] i64
        are absolute memory addresses of the experts (bank or slot); rows that share an expert are computed together."""

    def expert_outputs(
        self, x: torch.Tensor, ids: torch.Tensor, addresses: torch.Tensor, shape: ExpertShape, parts: torch.Tensor
    ) -> None:
        """Writes the output of each row's chosen experts to `parts` [M, top_k, hidden] fp32. A choice whose address is 0 is
        someone else's: its part is left alone."""

    def combine(self, parts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[M, top_k, hidden], [M, top_k] -> [M, hidden]: the sum of weight * part in router order."""

    def set_activations(self, precision: str) -> None:
        """ "f32" or "bf16", process-wide. With bf16 the input of every product with a matrix that is not f32 is rounded to
        bf16, nearest even; the sum stays fp32. Attention over bf16 pages then rounds queries and probabilities too."""

    def activations(self) -> str: ...

    def set_threads(self, n: int) -> None: ...
