"""What the architectures share: the frame around the blocks, the Llama-like attention layer, and the stack made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.errors import Unsupported
from engine.kernels.contract import Packed
from engine.layers import rope
from engine.layers.attention import Attention, AttentionShape, attention_tensors
from engine.layers.decoder import Block, Decoder, FeedForward
from engine.layers.mlp import Mlp
from engine.layers.norm import norm_tensor
from engine.layers.rope import Rope
from engine.memory.geometry import Geometry
from engine.models.spec import Config, Parts
from engine.weights.config import head_dim
from engine.weights.map import DenseTensor, LayerExperts


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


def attention_shape(config: Config) -> AttentionShape:
    return AttentionShape(
        heads=config["num_attention_heads"],
        kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        head_dim=head_dim(dict(config)),
        bias=bool(config.get("attention_bias")),
        window=0 if config.get("use_sliding_window") is False else config.get("sliding_window") or 0,
    )


def attention_layers(shapes: Sequence[AttentionShape]) -> dict[str, DenseTensor]:
    """The tensors of a model whose every layer has attention."""
    tensors: dict[str, DenseTensor] = {}
    for layer, shape in enumerate(shapes):
        tensors |= attention_tensors(f"layers.{layer}.attention", f"model.layers.{layer}.self_attn", shape)
    return tensors


def attention(parts: Parts, name: str, layer: int, shape: AttentionShape, table: Rope) -> Attention:
    """The attention layer stored under `name`; `layer` counts attention layers."""
    return Attention(
        ops=parts.ops,
        layer=layer,
        shape=shape,
        rope=table,
        qkv=parts.packed(f"{name}.qkv"),
        out=parts.packed(f"{name}.out"),
        qkv_bias=parts.bias(f"{name}.qkv_bias"),
        out_bias=parts.bias(f"{name}.out_bias"),
        q_norm=parts.norm(f"{name}.q_norm") if shape.normed else None,
        k_norm=parts.norm(f"{name}.k_norm") if shape.normed else None,
        sinks=parts.bias(f"{name}.sinks"),
    )


def attention_decoder(
    parts: Parts, shapes: Sequence[AttentionShape], feed_forward: Callable[[int], FeedForward]
) -> Decoder:
    """The stack of a model whose every layer has attention; `feed_forward` gives each layer's other half."""
    table = rope.table(parts.config, shapes[0].head_dim, parts.window_tokens)
    blocks = []
    for layer, shape in enumerate(shapes):
        name = f"layers.{layer}"
        mixer = attention(parts, f"{name}.attention", layer, shape, table)
        blocks.append(
            Block(parts.norm(f"{name}.mixer_norm"), mixer, parts.norm(f"{name}.ffn_norm"), feed_forward(layer))
        )
    return Decoder(parts.ops, parts.packed("embedding"), blocks, parts.norm("norm"), head(parts))


def mlp(parts: Parts, name: str) -> Mlp:
    """The dense feed-forward network stored under `name`."""
    return Mlp(
        parts.ops,
        parts.packed(f"{name}.gate_up"),
        parts.packed(f"{name}.down"),
        parts.bias(f"{name}.gate_up_bias"),
        parts.bias(f"{name}.down_bias"),
    )


def geometry(config: Config, shape: AttentionShape, **sizes: Any) -> Geometry:
    """Sizes of a model, attention in every layer and no experts unless `sizes` says otherwise; bytes are the writer's."""
    dense: dict[str, Any] = {
        "attention_layers": config["num_hidden_layers"],
        "state_layer_bytes": (),
        "moe_layers": 0,
        "experts": 0,
        "top_k": 0,
        "expert_width": 0,
    }
    return Geometry(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        expert_bytes=0,
        bank_bytes=0,
        dense_bytes=0,
        max_window_tokens=config["max_position_embeddings"],
        **{**dense, **sizes},
    )


def expert_count(config: Config) -> int:
    """Experts of a layer; configurations call it by either name."""
    return int(config.get("num_experts") or config["num_local_experts"])


def qwen_experts(layer: int) -> LayerExperts:
    """The experts of a layer as the Qwen family names them."""
    source = f"model.layers.{layer}.mlp.experts"
    gate, up, down = (f"{source}.{{expert}}.{part}_proj.weight" for part in ("gate", "up", "down"))
    return LayerExperts(layer, gate, up, down, f"{source}.gate_up_proj", f"{source}.down_proj")


def require_silu(config: Config) -> None:
    """Raises Unsupported when the feed-forward activation is another one."""
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise Unsupported(f"Activation {config['hidden_act']!r} is not offered.", "Use a checkpoint with silu.")
