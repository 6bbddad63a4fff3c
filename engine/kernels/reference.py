"""Every operation in plain torch, written to be read: what the fast kernels are tested against."""

from __future__ import annotations

import ctypes

import torch
from torch.nn.functional import silu, softplus

from . import layout
from .contract import ACTIVATIONS, Batch, ExpertShape, Heads, Packed, packed_bytes
from .pages import as_kept, by_position

KV_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class ReferenceOps:
    """Implements contract.Ops. Rows are not promised to be bit-equal across batch shapes here."""

    def __init__(self) -> None:
        self._activations = "f32"

    def pack(self, weight: torch.Tensor, format: str) -> torch.Tensor:
        return layout.pack(weight, format)

    def unpack(self, weight: Packed) -> torch.Tensor:
        return layout.unpack(weight)

    def linear(self, x: torch.Tensor, weight: Packed, bias: torch.Tensor | None = None) -> torch.Tensor:
        if weight.format != "f32" and self._activations == "bf16":
            x = x.bfloat16().float()
        return torch.nn.functional.linear(x, layout.unpack(weight), bias)

    def embedding(self, ids: torch.Tensor, weight: Packed) -> torch.Tensor:
        return layout.unpack(weight)[ids.long()]

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    def add_rmsnorm(
        self, residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        residual += delta
        return self.rmsnorm(residual, weight, eps)

    def gated_rmsnorm(self, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return self.rmsnorm(x, weight, eps) * silu(gate)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate) * up

    def sigmoid_mul(self, x: torch.Tensor, gate: torch.Tensor, onto: torch.Tensor | None = None) -> torch.Tensor:
        product = x * torch.sigmoid(gate)
        return product if onto is None else onto.add_(product)

    def place_heads(self, batch: Batch, layer: int, projected: torch.Tensor, heads: Heads) -> torch.Tensor:
        queries, keys = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
        starts = (0, queries), (heads.key_column, keys), (heads.key_column + keys, keys)
        q, k, v = (projected[:, at : at + n].reshape(len(projected), -1, heads.head_dim).clone() for at, n in starts)
        if heads.q_norm is not None:
            q = self.rmsnorm(q, *heads.q_norm)
        if heads.k_norm is not None:
            k = self.rmsnorm(k, *heads.k_norm)
        _rotate(q, heads, batch.positions)
        _rotate(k, heads, batch.positions)
        for s in range(batch.row_start.numel() - 1):
            for row in range(int(batch.row_start[s]), int(batch.row_start[s + 1])):
                page, slot = divmod(int(batch.positions[row]), batch.page_tokens)
                kept = _page(batch, s, page, layer, heads.kv_heads, heads.head_dim)
                kv = by_position(kept, heads.head_dim)
                kv[0, :, slot] = k[row].to(kv.dtype)
                kv[1, :, slot] = v[row].to(kv.dtype)
                kept.copy_(as_kept(kv))
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
        _, heads, dim = q.shape
        out = torch.empty_like(q)
        for s in range(batch.row_start.numel() - 1):
            rows = slice(int(batch.row_start[s]), int(batch.row_start[s + 1]))
            positions = batch.positions[rows]
            length = int(positions.max()) + 1
            pages = [_page(batch, s, p, layer, kv_heads, dim) for p in range(-(-length // batch.page_tokens))]
            k, v = torch.cat([by_position(page, dim).float() for page in pages], dim=2)[
                :, :, :length
            ].repeat_interleave(heads // kv_heads, dim=1)
            scores = torch.einsum("rhd,hld->rhl", q[rows], k) * scale
            distance = positions[:, None] - torch.arange(length)[None, :]
            unseen = (distance < 0) | (distance >= (window or length + 1))
            scores = scores.masked_fill(unseen[:, None], float("-inf"))
            if sinks is not None:
                scores = torch.cat([scores, sinks[None, :, None].expand(len(scores), heads, 1)], dim=-1)
            probabilities = scores.softmax(-1)[..., :length]
            out[rows] = torch.einsum("rhl,hld->rhd", probabilities, v)
        return out.flatten(1)

    def conv(self, batch: Batch, layer: int, x: torch.Tensor, weight: torch.Tensor, state_offset: int) -> torch.Tensor:
        channels, width = weight.shape
        out = torch.empty_like(x)
        for s in range(batch.row_start.numel() - 1):
            window = _floats(batch.arena, int(batch.states[s, layer]) + state_offset, (width - 1, channels))
            first, last = int(batch.row_start[s]), int(batch.row_start[s + 1])
            inputs = torch.cat([window, x[first:last]])
            for row in range(last - first):
                out[first + row] = silu((inputs[row : row + width] * weight.T).sum(0))
            for target, rows in _snapshots(batch, s, layer):
                _floats(batch.arena, target + state_offset, (width - 1, channels)).copy_(
                    inputs[rows : rows + width - 1]
                )
            window.copy_(inputs[last - first :])
        return out

    def delta_gates(
        self, ba: torch.Tensor, decay: torch.Tensor, dt_bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        heads = decay.numel()
        return decay * softplus(ba[:, heads:] + dt_bias), ba[:, :heads].sigmoid()

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
        _, k_heads, k_dim = q.shape
        v_heads, v_dim = v.shape[1:]
        q = (q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * k_dim**-0.5).repeat_interleave(
            v_heads // k_heads, 1
        )
        k = (k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)).repeat_interleave(v_heads // k_heads, 1)
        out = torch.empty_like(v)
        shape = (v_heads, k_dim, v_dim)
        for s in range(batch.row_start.numel() - 1):
            state = _floats(batch.arena, int(batch.states[s, layer]), shape)
            first, last = int(batch.row_start[s]), int(batch.row_start[s + 1])
            for row in range(first, last + 1):
                for target, rows in _snapshots(batch, s, layer):
                    if rows == row - first:
                        _floats(batch.arena, target, shape).copy_(state)
                if row == last:
                    break
                state *= g[row].exp()[:, None, None]
                delta = (v[row] - torch.einsum("hkv,hk->hv", state, k[row])) * beta[row][:, None]
                state += k[row][:, :, None] * delta[:, None, :]
                out[row] = torch.einsum("hkv,hk->hv", state, q[row])
        return out

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        weights, ids = weights[:, :top_k], ids[:, :top_k]
        if renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return ids.to(torch.int32).contiguous(), weights.contiguous()

    def experts(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        addresses: torch.Tensor,
        shape: ExpertShape,
    ) -> torch.Tensor:
        parts = torch.empty(*ids.shape, shape.hidden)
        self.expert_outputs(x, ids, addresses, shape, parts)
        return self.combine(parts, weights)

    def expert_outputs(
        self, x: torch.Tensor, ids: torch.Tensor, addresses: torch.Tensor, shape: ExpertShape, parts: torch.Tensor
    ) -> None:
        hidden, width, gate_bias, down_bias = shape.hidden, shape.width, None, None
        for row in range(x.shape[0]):
            for choice, expert in enumerate(ids[row].tolist()):
                base = int(addresses[expert])
                if base == 0:
                    continue
                if shape.bias:
                    gate_bias = _floats_at(base + shape.bias_offset, 2 * width)
                    down_bias = _floats_at(base + shape.bias_offset + 8 * width, hidden)
                gate_up = self.linear(x[row : row + 1], _packed_at(base, shape.format, 2 * width, hidden), gate_bias)
                act = _ACTIVATIONS[shape.activation](*gate_up.chunk(2, dim=-1))
                down = _packed_at(base + shape.down_offset, shape.format, hidden, width)
                parts[row, choice] = self.linear(act, down, down_bias)[0]

    def combine(self, parts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (parts * weights[..., None]).sum(1)

    def set_activations(self, precision: str) -> None:
        if precision not in ACTIVATIONS:
            raise ValueError(f"activations are one of {', '.join(ACTIVATIONS)}, not {precision!r}")
        self._activations = precision

    def activations(self) -> str:
        return self._activations

    def set_threads(self, n: int) -> None:
        torch.set_num_threads(n)


def _silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return silu(gate) * up


def _swiglu_oai(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


_ACTIVATIONS = {"silu": _silu, "swiglu_oai": _swiglu_oai}


def _floats(arena: torch.Tensor, offset: int, shape: tuple[int, ...]) -> torch.Tensor:
    """A writable fp32 view of the arena."""
    count = torch.Size(shape).numel()
    return arena[offset : offset + 4 * count].view(torch.float32).view(shape)


def _rotate(x: torch.Tensor, heads: Heads, positions: torch.Tensor) -> None:
    """Half-split rotation of [M, heads, head_dim] in place."""
    half = heads.cos.shape[1]
    c, s = heads.cos[positions.long()][:, None], heads.sin[positions.long()][:, None]
    first, second = x[..., :half].clone(), x[..., half : 2 * half].clone()
    x[..., :half] = first * c - second * s
    x[..., half : 2 * half] = second * c + first * s


def _page(batch: Batch, seq: int, page: int, layer: int, heads: int, dim: int) -> torch.Tensor:
    """A writable view [2, kv_heads, page_tokens * head_dim] of one layer of one KV page, as kept."""
    dtype = KV_DTYPES[batch.kv_dtype]
    count = 2 * heads * batch.page_tokens * dim
    offset = int(batch.page_offsets[seq, page]) + layer * count * dtype.itemsize
    return batch.arena[offset : offset + count * dtype.itemsize].view(dtype).view(2, heads, batch.page_tokens * dim)


def _snapshots(batch: Batch, seq: int, layer: int) -> list[tuple[int, int]]:
    """(byte offset of the layer's stored state, rows absorbed) of the snapshots of one sequence."""
    return [
        (int(batch.snapshot_states[c, layer]), int(batch.snapshot_rows[c]))
        for c in range(batch.snapshot_seq.numel())
        if int(batch.snapshot_seq[c]) == seq
    ]


def _packed_at(address: int, format: str, n: int, k: int) -> Packed:
    """A packed matrix that lies at an absolute memory address."""
    memory = (ctypes.c_uint8 * packed_bytes(n, k, format)).from_address(address)
    return Packed(torch.frombuffer(memory, dtype=torch.uint8), format, n, k)


def _floats_at(address: int, count: int) -> torch.Tensor:
    """fp32 values at an absolute memory address."""
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)
