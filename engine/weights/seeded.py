"""Seeded random weights in the shape of a small qwen3_5_moe: for wiring tests, with no checkpoint to read."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

TINY_HYBRID_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def tiny_hybrid_config(vocab_size: int, eos_token_id: int) -> dict[str, Any]:
    """A qwen3_5_moe_text configuration: 8 layers, every fourth with full attention, 8 experts, top-2."""
    layers = 8
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "hidden_act": "silu",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "num_hidden_layers": layers,
        "layer_types": ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "attention_bias": False,
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
        "tie_word_embeddings": False,
        "eos_token_id": eos_token_id,
    }


def hybrid_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a qwen3_5_moe text model, as Hugging Face names them (experts fused)."""
    c = config
    hidden, head_dim = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
    key, value = (
        c["linear_num_key_heads"] * c["linear_key_head_dim"],
        c["linear_num_value_heads"] * c["linear_value_head_dim"],
    )
    experts, width, shared = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
    attention = {
        "self_attn.q_proj.weight": (2 * q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "self_attn.q_norm.weight": (head_dim,),
        "self_attn.k_norm.weight": (head_dim,),
    }
    linear = {
        "linear_attn.in_proj_qkv.weight": (2 * key + value, hidden),
        "linear_attn.in_proj_z.weight": (value, hidden),
        "linear_attn.in_proj_b.weight": (c["linear_num_value_heads"], hidden),
        "linear_attn.in_proj_a.weight": (c["linear_num_value_heads"], hidden),
        "linear_attn.conv1d.weight": (2 * key + value, 1, c["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (c["linear_num_value_heads"],),
        "linear_attn.dt_bias": (c["linear_num_value_heads"],),
        "linear_attn.norm.weight": (c["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (hidden, value),
    }
    common = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate.weight": (experts, hidden),
        "mlp.experts.gate_up_proj": (experts, 2 * width, hidden),
        "mlp.experts.down_proj": (experts, hidden, width),
        "mlp.shared_expert.gate_proj.weight": (shared, hidden),
        "mlp.shared_expert.up_proj.weight": (shared, hidden),
        "mlp.shared_expert.down_proj.weight": (hidden, shared),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (c["vocab_size"], hidden),
    }
    for i, kind in enumerate(c["layer_types"]):
        parts = {**common, **(attention if kind == "full_attention" else linear)}
        shapes.update({f"model.layers.{i}.{name}": shape for name, shape in parts.items()})
    return shapes


class SeededHybrid:
    """A `TensorSource` of random tensors, each seeded by its own name: the same on every machine, in any order."""

    def __init__(self, config: dict[str, Any], seed: int = 0) -> None:
        self._shapes, self._seed = hybrid_shapes(config), seed

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._shapes)

    def read(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        random = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        return torch.from_numpy(random_values(name, shape, random).astype(np.float32))

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self.read(name)[expert]

    def kind(self, name: str) -> str:
        return "f32"


def random_values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Decays as the architecture is initialised; norms near their neutral value, but not on it, so that a missing or doubled
    one shows; matrices scaled to keep activations near one."""
    if name.endswith("A_log"):
        decay: np.ndarray[Any, Any] = np.log(random.uniform(0.01, 16.0, shape))
        return decay
    noise: np.ndarray[Any, Any] = random.standard_normal(shape)
    if name.endswith("dt_bias") or name.endswith("linear_attn.norm.weight"):
        return 1.0 + 0.1 * noise
    if name.endswith("norm.weight"):  # these are stored as the difference from one
        return 0.1 * noise
    if name.endswith("conv1d.weight"):
        return 0.5 * noise
    if name == "model.embed_tokens.weight":
        return noise
    noise *= shape[-1] ** -0.5
    return noise
