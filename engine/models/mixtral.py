"""Mixtral: Llama's attention, and top-k routed experts in every layer."""

from __future__ import annotations

from typing import Any

from engine.layers.decoder import Decoder
from engine.layers.moe import Moe
from engine.models import common
from engine.models.spec import ModelSpec, Parts
from engine.weights.map import DenseTensor, LayerExperts, WeightMap


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    shape, layers = common.attention_shape(config), config["num_hidden_layers"]
    dense = common.frame_tensors(config) | common.attention_layers([shape] * layers)
    experts = []
    for layer in range(layers):
        moe = f"model.layers.{layer}.block_sparse_moe"
        dense[f"layers.{layer}.moe.router"] = DenseTensor((f"{moe}.gate.weight",), format="f32")
        gate, down, up = (f"{moe}.experts.{{expert}}.{part}.weight" for part in ("w1", "w2", "w3"))
        experts.append(LayerExperts(layer, gate, up, down, f"{moe}.experts.gate_up_proj", f"{moe}.experts.down_proj"))
    geometry = common.geometry(
        config,
        shape,
        moe_layers=layers,
        experts=common.expert_count(config),
        top_k=config["num_experts_per_tok"],
        expert_width=config["intermediate_size"],
    )
    return WeightMap(dense, geometry, tuple(experts), ignore=common.unused_sources(config))


def build(parts: Parts) -> Decoder:
    def moe(layer: int) -> Moe:
        assert parts.experts is not None
        router = parts.packed(f"layers.{layer}.moe.router")
        return Moe(parts.ops, layer, parts.config["num_experts_per_tok"], router, parts.experts)

    shapes = [common.attention_shape(parts.config)] * parts.config["num_hidden_layers"]
    return common.attention_decoder(parts, shapes, moe)


MODEL = ModelSpec(("mixtral",), mapping, build)
