"""What the architectures share: the frame around the blocks, and the Llama-like attention layer."""

from __future__ import annotations

from typing import Any

from engine.errors import Unsupported
from engine.kernels.contract import Packed
from engine.layers.attention import Attention, AttentionShape
from engine.layers.norm import norm_tensor
from engine.layers.rope import Rope
from engine.models.spec import Parts
from engine.weights.config import head_dim
from engine.weights.map import DenseTensor


def frame_tensors(config: dict[str, Any], centred: bool = False) -> dict[str, DenseTensor]:
    """Embedding, final norm, the two norms of every layer, and the head unless it is the embedding."""
    tensors = {
        "embedding": DenseTensor(("model.embed_tokens.weight",)),
        "norm": norm_tensor("model.norm.weight", centred),
    }
    if not config.get("tie_word_embeddings"):
        tensors["head"] = DenseTensor(("lm_head.weight",))
    for layer in range(config["num_hidden_layers"]):
        source = f"model.layers.{layer}"
        tensors[f"layers.{layer}.mixer_norm"] = norm_tensor(f"{source}.input_layernorm.weight", centred)
        tensors[f"layers.{layer}.ffn_norm"] = norm_tensor(f"{source}.post_attention_layernorm.weight", centred)
    return tensors


def unused_sources(config: dict[str, Any]) -> tuple[str, ...]:
    """Prefixes of published tensors that carry nothing: a tied head, and rotary tables that are computed here."""
    rotary = tuple(f"model.layers.{l}.self_attn.rotary_emb." for l in range(config["num_hidden_layers"]))
    return (*rotary, "lm_head.") if config.get("tie_word_embeddings") else rotary


def head(parts: Parts) -> Packed:
    """The output projection; the embedding itself when they are tied."""
    return parts.packed("head" if "head" in parts.dense else "embedding")


def attention_shape(config: dict[str, Any]) -> AttentionShape:
    return AttentionShape(
        heads=config["num_attention_heads"],
        kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        head_dim=head_dim(config),
        bias=bool(config.get("attention_bias")),
    )


def attention(parts: Parts, name: str, layer: int, shape: AttentionShape, rope: Rope) -> Attention:
    """The attention layer stored under `name`; `layer` counts attention layers."""
    return Attention(
        ops=parts.ops,
        layer=layer,
        shape=shape,
        rope=rope,
        qkv=parts.packed(f"{name}.qkv"),
        out=parts.packed(f"{name}.out"),
        qkv_bias=parts.bias(f"{name}.qkv_bias"),
        out_bias=parts.bias(f"{name}.out_bias"),
        q_norm=parts.norm(f"{name}.q_norm") if shape.normed else None,
        k_norm=parts.norm(f"{name}.k_norm") if shape.normed else None,
    )


def require_silu(config: dict[str, Any]) -> None:
    """Raises Unsupported when the feed-forward activation is another one."""
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise Unsupported(f"Activation {config['hidden_act']!r} is not offered.", "Use a checkpoint with silu.")


def require_full_attention(config: dict[str, Any]) -> None:
    """Raises Unsupported when a sliding window would cut attention inside the model's own context."""
    window = config.get("sliding_window")
    if window is not None and window < config["max_position_embeddings"]:
        raise Unsupported(
            f"A sliding window of {window} tokens is not offered.", "Use a checkpoint with full attention."
        )
