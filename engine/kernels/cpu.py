"""The C++ kernels (csrc/cpu) behind contract.Ops: checks tensors, allocates outputs, passes addresses.

A decode step makes hundreds of these calls, so each costs a few microseconds at most: tensors go down as addresses, not as
converted arrays. Wrong tensors raise TypeError (dtype, device, contiguity) or ValueError (sizes, indices).
"""

from __future__ import annotations

from functools import cache

import torch

from engine.errors import Unsupported

from . import _cpu
from .contract import ACTIVATIONS, EXPERT_ACTIVATIONS, FORMATS, Batch, ExpertShape, Heads, Packed, packed_bytes
from .pages import KV_BLOCK

_FORMAT = {name: index for index, name in enumerate(FORMATS)}
_F32, _I32, _I64, _U8 = torch.float32, torch.int32, torch.int64, torch.uint8


class CpuOps:
    """Implements contract.Ops. The instruction set is chosen when the module loads (FT_ISA=avx2|avx512|avx512bf16 overrides)."""

    def pack(self, weight: torch.Tensor, format: str) -> torch.Tensor:
        code = _format(format)
        source = weight.to(_F32).contiguous()
        n, k = _shape(source, 2)
        out = torch.empty(packed_bytes(n, k, format), dtype=_U8)
        _cpu.pack(_address(source, _F32), n, k, code, out.data_ptr())
        return out

    def unpack(self, weight: Packed) -> torch.Tensor:
        at, code = _weight(weight)
        out = torch.empty(weight.n, weight.k)
        _cpu.unpack(at, weight.n, weight.k, code, out.data_ptr())
        return out

    def linear(self, x: torch.Tensor, weight: Packed, bias: torch.Tensor | None = None) -> torch.Tensor:
        rows, k = _shape(x, 2)
        _equal(k, weight.k, "inputs")
        at, code = _weight(weight)
        if bias is not None:
            _equal(bias.numel(), weight.n, "biases")
        out = torch.empty(rows, weight.n)
        bias_at = 0 if bias is None else _address(bias, _F32)
        _cpu.linear(_address(x, _F32), rows, at, code, weight.n, k, bias_at, out.data_ptr())
        return out

    def embedding(self, ids: torch.Tensor, weight: Packed) -> torch.Tensor:
        (rows,) = _shape(ids, 1)
        at, code = _weight(weight)
        out = torch.empty(rows, weight.k)
        _cpu.embedding(_address(ids, _I32), rows, at, weight.n, weight.k, code, out.data_ptr())
        return out

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, dim = _rows(x, weight)
        out = torch.empty(x.shape)
        _cpu.rmsnorm(_address(x, _F32), rows, dim, _address(weight, _F32), eps, 0, out.data_ptr())
        return out

    def add_rmsnorm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        rows, dim = _rows(residual, weight)
        _equal(delta.numel(), rows * dim, "delta values")
        out = torch.empty(residual.shape)
        _cpu.add_rmsnorm(
            _address(residual, _F32), _address(delta, _F32), rows, dim, _address(weight, _F32), eps, out.data_ptr()
        )
        return out

    def gated_rmsnorm(self, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, dim = _rows(x, weight)
        _equal(gate.numel(), rows * dim, "gate values")
        out = torch.empty(x.shape)
        _cpu.rmsnorm(_address(x, _F32), rows, dim, _address(weight, _F32), eps, _address(gate, _F32), out.data_ptr())
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        rows, columns = _shape(gate_up, 2)
        _equal(columns % 2, 0, "columns past an even number")
        out = torch.empty(rows, columns // 2)
        _cpu.silu_mul(_address(gate_up, _F32), rows, columns // 2, out.data_ptr())
        return out

    def sigmoid_mul(self, x: torch.Tensor, gate: torch.Tensor, onto: torch.Tensor | None = None) -> torch.Tensor:
        dim = x.shape[-1]
        rows = x.numel() // dim if dim else 0
        gate_dim = 1 if gate.numel() == rows else dim
        _equal(gate.numel(), rows * gate_dim, "gate values")
        out = torch.empty(x.shape) if onto is None else onto
        _equal(out.numel(), x.numel(), "values to add to")
        _cpu.sigmoid_mul(
            _address(x, _F32), _address(gate, _F32), rows, dim, gate_dim, onto is not None, _address(out, _F32)
        )
        return out

    def place_heads(self, batch: Batch, layer: int, projected: torch.Tensor, heads: Heads) -> torch.Tensor:
        rows, columns = _shape(projected, 2)
        _equal(rows, batch.positions.numel(), "rows")
        _even(batch, heads.head_dim)
        q = torch.empty(rows, heads.heads, heads.head_dim)
        at = _address(projected, _F32)
        _cpu.place_heads(_view(batch), layer, at, columns, *_heads(heads, columns), q.data_ptr())
        return q

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
        rows, heads, dim = _shape(q, 3)
        _equal(rows, batch.positions.numel(), "rows")
        _even(batch, dim)
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"{heads} heads cannot share {kv_heads} key heads")
        if window < 0:
            raise ValueError(f"an attention window of {window} tokens")
        if sinks is not None:
            _equal(sinks.numel(), heads, "sinks")
        out = torch.empty(rows, heads * dim)
        sinks_at = 0 if sinks is None else _address(sinks, _F32)
        _cpu.attention(
            _view(batch), layer, _address(q, _F32), heads, kv_heads, dim, scale, window, sinks_at, out.data_ptr()
        )
        return out

    def conv(self, batch: Batch, layer: int, x: torch.Tensor, weight: torch.Tensor, state_offset: int) -> torch.Tensor:
        rows, channels = _shape(x, 2)
        _equal(rows, batch.positions.numel(), "rows")
        _equal(weight.shape[0], channels, "channels")
        _, width = _shape(weight, 2)
        out = torch.empty(rows, channels)
        _cpu.conv(
            _view(batch),
            layer,
            _address(x, _F32),
            channels,
            _address(weight, _F32),
            width,
            state_offset,
            out.data_ptr(),
        )
        return out

    def delta_gates(
        self, ba: torch.Tensor, decay: torch.Tensor, dt_bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = _shape(ba, 2)
        heads = columns // 2
        _equal(decay.numel(), heads, "decays")
        _equal(dt_bias.numel(), heads, "biases")
        g, beta = torch.empty(rows, heads), torch.empty(rows, heads)
        _cpu.delta_gates(
            _address(ba, _F32),
            rows,
            heads,
            _address(decay, _F32),
            _address(dt_bias, _F32),
            g.data_ptr(),
            beta.data_ptr(),
        )
        return g, beta

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
        rows, k_heads, k_dim = _shape(q, 3)
        _equal(rows, batch.positions.numel(), "rows")
        v_rows, v_heads, v_dim = _shape(v, 3)
        _equal(v_rows, rows, "value rows")
        _equal(k.numel(), q.numel(), "key values")
        _equal(g.numel(), rows * v_heads, "decays")
        _equal(beta.numel(), rows * v_heads, "rates")
        if v_heads % k_heads:
            raise ValueError(f"{v_heads} value heads cannot share {k_heads} key heads")
        out = torch.empty(rows, v_heads, v_dim)
        _cpu.delta_rule(
            _view(batch), layer, _address(q, _F32), _address(k, _F32), _address(v, _F32), _address(g, _F32),
            _address(beta, _F32), k_heads, k_dim, v_heads, v_dim, out.data_ptr(),
        )  # fmt: skip
        return out

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows, experts = _shape(logits, 2)
        if not 1 <= top_k <= experts:
            raise ValueError(f"cannot choose {top_k} of {experts} experts")
        ids, weights = torch.empty(rows, top_k, dtype=_I32), torch.empty(rows, top_k)
        _cpu.route(_address(logits, _F32), rows, experts, top_k, renormalise, ids.data_ptr(), weights.data_ptr())
        return ids, weights

    def experts(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        addresses: torch.Tensor,
        shape: ExpertShape,
    ) -> torch.Tensor:
        rows, top_k = _shape(ids, 2)
        _equal(weights.numel(), rows * top_k, "weights")
        out = torch.empty(x.shape)
        _cpu.experts(*_routed(x, ids, addresses, shape), *_expert(shape), _address(weights, _F32), out.data_ptr())
        return out

    def expert_outputs(
        self, x: torch.Tensor, ids: torch.Tensor, addresses: torch.Tensor, shape: ExpertShape, parts: torch.Tensor
    ) -> None:
        rows, top_k = _shape(ids, 2)
        _equal(parts.numel(), rows * top_k * shape.hidden, "output values")
        _cpu.expert_outputs(*_routed(x, ids, addresses, shape), *_expert(shape), _address(parts, _F32))

    def combine(self, parts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        rows, top_k, hidden = _shape(parts, 3)
        _equal(weights.numel(), rows * top_k, "weights")
        out = torch.empty(rows, hidden)
        _cpu.combine(_address(parts, _F32), _address(weights, _F32), rows, top_k, hidden, out.data_ptr())
        return out

    def set_activations(self, precision: str) -> None:
        if precision not in ACTIVATIONS:
            raise ValueError(f"activations are one of {', '.join(ACTIVATIONS)}, not {precision!r}")
        _cpu.set_activations(precision == "bf16")

    def activations(self) -> str:
        return "bf16" if _cpu.activations() else "f32"

    def set_threads(self, n: int) -> None:
        _cpu.set_threads(n)


def isa() -> str:
    """The instruction set in use: avx2, avx512 or avx512bf16."""
    return str(_cpu.isa())


def thread_count() -> int:
    """Threads of the pool, the calling one included."""
    return int(_cpu.thread_count())


def _address(tensor: torch.Tensor, dtype: torch.dtype) -> int:
    if tensor.dtype is not dtype or not tensor.is_contiguous() or not tensor.is_cpu:
        raise TypeError(
            f"need a contiguous {dtype} CPU tensor, got {tensor.dtype} with strides {tensor.stride()} on {tensor.device}"
        )
    return tensor.data_ptr()


def _shape(tensor: torch.Tensor, dimensions: int) -> torch.Size:
    shape = tensor.shape
    if len(shape) != dimensions:
        raise ValueError(f"need {dimensions} dimensions, got shape {tuple(shape)}")
    return shape


def _equal(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise ValueError(f"{found} {what}, {wanted} needed")


def _even(batch: Batch, dim: int) -> None:
    if dim % 2 and batch.kv_dtype == "bf16":
        raise ValueError(f"heads of {dim} values, an even number needed")


def _rows(x: torch.Tensor, weight: torch.Tensor) -> tuple[int, int]:
    """(rows, values of a row) of a tensor that is normalised over its last dimension."""
    dim = x.shape[-1]
    _equal(weight.numel(), dim, "norm weights")
    return (x.numel() // dim if dim else 0), dim


def _format(format: str) -> int:
    code = _FORMAT.get(format)
    if code is None:
        raise Unsupported(f"no weight format called {format!r}", f"Use one of {', '.join(FORMATS)}.")
    return code


def _routed(
    x: torch.Tensor, ids: torch.Tensor, addresses: torch.Tensor, shape: ExpertShape
) -> tuple[int, int, int, int, int, int]:
    """(x, ids, addresses, rows, top_k, experts) of a call, checked."""
    rows, top_k = _shape(ids, 2)
    _equal(x.numel(), rows * shape.hidden, "input values")
    return _address(x, _F32), _address(ids, _I32), _address(addresses, _I64), rows, top_k, addresses.numel()


@cache
def _expert(shape: ExpertShape) -> tuple[int, int, int, int, int, int]:
    """(hidden, width, format, offset of down, offset of biases or 0, activation), as the C++ side takes them."""
    if shape.activation not in EXPERT_ACTIVATIONS:
        raise Unsupported(
            f"no expert activation called {shape.activation!r}", f"Use one of {', '.join(EXPERT_ACTIVATIONS)}."
        )
    return (
        shape.hidden, shape.width, _format(shape.format), shape.down_offset,
        shape.bias_offset if shape.bias else 0, EXPERT_ACTIVATIONS.index(shape.activation),
    )  # fmt: skip


def _heads(heads: Heads, columns: int) -> tuple[int, int, int, int, int, int, int, int, int, float, int, float]:
    """(key column, heads, key heads, head_dim, cos, sin, positions, rotary/2, and of q and k: norm or 0, eps), checked."""
    dim = heads.head_dim
    positions, half = _shape(heads.cos, 2)
    _equal(heads.sin.numel(), positions * half, "sine values")
    if 2 * half > dim:
        raise ValueError(f"cannot rotate {2 * half} values of a head of {dim}")
    if heads.key_column < heads.heads * dim or heads.key_column + 2 * heads.kv_heads * dim > columns:
        raise ValueError(
            f"{heads.heads} heads and twice {heads.kv_heads} of {dim} values do not fit in {columns} columns"
        )
    norms: list[tuple[int, float]] = []
    for norm in (heads.q_norm, heads.k_norm):
        if norm is not None:
            _equal(norm[0].numel(), dim, "norm weights")
        norms.append((0, 0.0) if norm is None else (_address(norm[0], _F32), norm[1]))
    return (
        heads.key_column, heads.heads, heads.kv_heads, dim, _address(heads.cos, _F32), _address(heads.sin, _F32),
        positions, half, *norms[0], *norms[1],
    )  # fmt: skip


def _weight(weight: Packed) -> tuple[int, int]:
    """(address, format code) of a packed matrix whose buffer is long enough."""
    code = _format(weight.format)
    needed = packed_bytes(weight.n, weight.k, weight.format)
    if weight.data.numel() < needed:
        raise ValueError(
            f"packed {weight.format} [{weight.n}, {weight.k}] needs {needed} bytes, got {weight.data.numel()}"
        )
    return _address(weight.data, _U8), code


def _view(batch: Batch) -> _cpu.Batch:
    """The C++ side's description of a batch, made once; it is remade if a tensor of the batch is replaced."""
    tensors = (
        batch.arena, batch.row_start, batch.positions, batch.page_offsets, batch.states,
        batch.snapshot_seq, batch.snapshot_rows, batch.snapshot_states, batch.page_tokens, batch.kv_dtype,
    )  # fmt: skip
    cached = batch.extra.get("cpu")
    if isinstance(cached, tuple) and all(a is b for a, b in zip(cached[0], tensors, strict=True)):
        known: _cpu.Batch = cached[1]
        return known
    seqs, rows, snapshots = batch.row_start.numel() - 1, batch.positions.numel(), batch.snapshot_seq.numel()
    pages = batch.page_offsets.shape[1] if batch.page_offsets.dim() == 2 else 0
    layers = batch.states.shape[1] if batch.states.dim() == 2 else 0
    _equal(batch.page_offsets.numel(), seqs * pages, "page offsets")
    _equal(batch.states.numel(), seqs * layers, "state offsets")
    _equal(batch.snapshot_rows.numel(), snapshots, "snapshot rows")
    _equal(batch.snapshot_states.numel(), snapshots * layers, "snapshot offsets")
    if seqs < 1 or batch.page_tokens < 1:
        raise ValueError(f"a batch of {seqs} sequences with pages of {batch.page_tokens} tokens")
    if batch.kv_dtype not in ("f32", "bf16"):
        raise ValueError(f"KV cannot be kept as {batch.kv_dtype!r}")
    if batch.kv_dtype == "bf16" and batch.page_tokens % KV_BLOCK:
        raise ValueError(f"pages of {batch.page_tokens} tokens, a multiple of {KV_BLOCK} needed")
    view = _cpu.batch(
        _address(batch.arena, _U8), batch.arena.numel(), _address(batch.row_start, _I32),
        _address(batch.positions, _I32), _address(batch.page_offsets, _I64), seqs, rows, pages, batch.page_tokens,
        batch.kv_dtype == "bf16", _address(batch.states, _I64), layers, _address(batch.snapshot_seq, _I32),
        _address(batch.snapshot_rows, _I32), _address(batch.snapshot_states, _I64), snapshots,
    )  # fmt: skip
    batch.extra["cpu"] = (tensors, view)
    return view
