"""Llama: grouped-query attention and a gated feed-forward network in every layer."""

from __future__ import annotations

from typing import Any

from engine.layers import rope
from engine.layers.attention import attention_tensors
from engine.layers.decoder import Block, Decoder
from engine.layers.mlp import Mlp, mlp_tensors
from engine.memory.geometry import Geometry
from engine.models import common
from engine.models.spec import ModelSpec, Parts
from engine.weights.map import WeightMap


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    shape = common.attention_shape(config)
    dense = common.frame_tensors(config)
    for layer in range(config["num_hidden_layers"]):
        name, source = f"layers.{layer}", f"model.layers.{layer}"
        dense |= attention_tensors(f"{name}.attention", f"{source}.self_attn", shape)
        dense |= mlp_tensors(f"{name}.mlp", f"{source}.mlp", bias=bool(config.get("mlp_bias")))
    geometry = Geometry(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        attention_layers=config["num_hidden_layers"],
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        state_layer_bytes=(),
        moe_layers=0,
        experts=0,
        top_k=0,
        expert_width=0,
        expert_bytes=0,
        bank_bytes=0,
        dense_bytes=0,
        max_window_tokens=config["max_position_embeddings"],
    )
    return WeightMap(dense, geometry, ignore=common.unused_sources(config))


def build(parts: Parts) -> Decoder:
    config = dict(parts.config)
    shape = common.attention_shape(config)
    table = rope.table(config, shape.head_dim, parts.window_tokens)
    blocks = []
    for layer in range(config["num_hidden_layers"]):
        name = f"layers.{layer}"
        mlp = Mlp(
            parts.ops,
            parts.packed(f"{name}.mlp.gate_up"),
            parts.packed(f"{name}.mlp.down"),
            parts.bias(f"{name}.mlp.gate_up_bias"),
            parts.bias(f"{name}.mlp.down_bias"),
        )
        mixer = common.attention(parts, f"{name}.attention", layer, shape, table)
        blocks.append(Block(parts.norm(f"{name}.mixer_norm"), mixer, parts.norm(f"{name}.ffn_norm"), mlp))
    return Decoder(parts.ops, parts.packed("embedding"), blocks, parts.norm("norm"), common.head(parts))


MODEL = ModelSpec(("llama",), mapping, build)
