"""Mixtral: Llama's attention, and top-k routed experts in every layer."""

from __future__ import annotations

from typing import Any

from engine.layers import rope
from engine.layers.attention import attention_tensors
from engine.layers.decoder import Block, Decoder
from engine.layers.moe import Moe
from engine.memory.geometry import Geometry
from engine.models import common
from engine.models.spec import ModelSpec, Parts
from engine.weights.map import DenseTensor, LayerExperts, WeightMap


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    common.require_full_attention(config)
    shape = common.attention_shape(config)
    dense = common.frame_tensors(config)
    experts = []
    for layer in range(config["num_hidden_layers"]):
        name, source = f"layers.{layer}", f"model.layers.{layer}"
        dense |= attention_tensors(f"{name}.attention", f"{source}.self_attn", shape)
        moe = f"{source}.block_sparse_moe"
        dense[f"{name}.moe.router"] = DenseTensor((f"{moe}.gate.weight",), format="f32")
        experts.append(
            LayerExperts(
                layer,
                gate=f"{moe}.experts.{{expert}}.w1.weight",
                up=f"{moe}.experts.{{expert}}.w3.weight",
                down=f"{moe}.experts.{{expert}}.w2.weight",
                fused_gate_up=f"{moe}.experts.gate_up_proj",
                fused_down=f"{moe}.experts.down_proj",
            )
        )
    geometry = Geometry(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        attention_layers=config["num_hidden_layers"],
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        state_layer_bytes=(),
        moe_layers=config["num_hidden_layers"],
        experts=config["num_local_experts"],
        top_k=config["num_experts_per_tok"],
        expert_width=config["intermediate_size"],
        expert_bytes=0,
        bank_bytes=0,
        dense_bytes=0,
        max_window_tokens=config["max_position_embeddings"],
    )
    return WeightMap(dense, geometry, tuple(experts), ignore=common.unused_sources(config))


def build(parts: Parts) -> Decoder:
    assert parts.experts is not None
    config = dict(parts.config)
    shape = common.attention_shape(config)
    table = rope.table(config, shape.head_dim, parts.window_tokens)
    blocks = []
    for layer in range(config["num_hidden_layers"]):
        name = f"layers.{layer}"
        router = parts.packed(f"{name}.moe.router")
        moe = Moe(parts.ops, layer, config["num_experts_per_tok"], router, parts.experts)
        mixer = common.attention(parts, f"{name}.attention", layer, shape, table)
        blocks.append(Block(parts.norm(f"{name}.mixer_norm"), mixer, parts.norm(f"{name}.ffn_norm"), moe))
    return Decoder(parts.ops, parts.packed("embedding"), blocks, parts.norm("norm"), common.head(parts))


MODEL = ModelSpec(("mixtral",), mapping, build)
