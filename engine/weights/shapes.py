"""Names and shapes of a published checkpoint's tensors outside the experts, from its configuration alone. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import Unsupported
from engine.weights.config import architecture, head_dim

Shapes = dict[str, tuple[int, ...]]


def dense_shapes(config: dict[str, Any]) -> Shapes:
    """Shapes of every tensor that is no routed expert, under Hugging Face names. Raises Unsupported for an architecture that
    is not described here."""
    describe = _LAYERS.get(architecture(config))
    if describe is None:
        raise Unsupported(
            f"The shapes of architecture {architecture(config)!r} are not known.", f"Known: {', '.join(_LAYERS)}."
        )
    hidden = config["hidden_size"]
    shapes: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in (parts | describe(config, layer)).items()}
    return shapes


def _attention(config: dict[str, Any], gated: bool = False, normed: bool = False) -> Shapes:
    hidden, size, heads = config["hidden_size"], head_dim(config), config["num_attention_heads"]
    q, kv = heads * size, (config.get("num_key_value_heads") or heads) * size
    rows = {"q": (2 if gated else 1) * q, "k": kv, "v": kv}
    shapes: Shapes = {f"self_attn.{part}_proj.weight": (n, hidden) for part, n in rows.items()}
    shapes["self_attn.o_proj.weight"] = (hidden, q)
    if config.get("attention_bias"):
        shapes |= {f"self_attn.{part}_proj.bias": (n,) for part, n in rows.items()}
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if normed:
        shapes |= {f"self_attn.{part}_norm.weight": (size,) for part in "qk"}
    return shapes


def _linear_attention(config: dict[str, Any]) -> Shapes:
    hidden, values = config["hidden_size"], config["linear_num_value_heads"]
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    value = values * config["linear_value_head_dim"]
    return {
        "linear_attn.in_proj_qkv.weight": (2 * key + value, hidden),
        "linear_attn.in_proj_z.weight": (value, hidden),
        "linear_attn.in_proj_b.weight": (values, hidden),
        "linear_attn.in_proj_a.weight": (values, hidden),
        "linear_attn.conv1d.weight": (2 * key + value, 1, config["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (values,),
        "linear_attn.dt_bias": (values,),
        "linear_attn.norm.weight": (config["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (hidden, value),
    }


def _experts(config: dict[str, Any]) -> int:
    """Configurations call it by either name."""
    return int(config.get("num_experts") or config["num_local_experts"])


def _llama(config: dict[str, Any], layer: int) -> Shapes:
    hidden, width = config["hidden_size"], config["intermediate_size"]
    rows = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    return {**_attention(config), **{f"mlp.{part}_proj.weight": shape for part, shape in rows.items()}}


def _mixtral(config: dict[str, Any], layer: int) -> Shapes:
    router = (_experts(config), config["hidden_size"])
    return {**_attention(config), "block_sparse_moe.gate.weight": router}


def _qwen3_moe(config: dict[str, Any], layer: int) -> Shapes:
    return {**_attention(config, normed=True), "mlp.gate.weight": (_experts(config), config["hidden_size"])}


def _qwen3_5_moe(config: dict[str, Any], layer: int) -> Shapes:
    hidden, shared = config["hidden_size"], config["shared_expert_intermediate_size"]
    full = (layer + 1) % config.get("full_attention_interval", 4) == 0
    if kinds := config.get("layer_types"):
        full = kinds[layer] == "full_attention"
    return {
        **(_attention(config, gated=True, normed=True) if full else _linear_attention(config)),
        "mlp.gate.weight": (_experts(config), hidden),
        "mlp.shared_expert.gate_proj.weight": (shared, hidden),
        "mlp.shared_expert.up_proj.weight": (shared, hidden),
        "mlp.shared_expert.down_proj.weight": (hidden, shared),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }


def _gpt_oss(config: dict[str, Any], layer: int) -> Shapes:
    experts = _experts(config)
    return {
        **_attention(config),
        "self_attn.sinks": (config["num_attention_heads"],),
        "mlp.router.weight": (experts, config["hidden_size"]),
        "mlp.router.bias": (experts,),
    }


_LAYERS: dict[str, Callable[[dict[str, Any], int], Shapes]] = {
    "llama": _llama,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "qwen3_5_moe": _qwen3_5_moe,
    "gpt_oss": _gpt_oss,
}
