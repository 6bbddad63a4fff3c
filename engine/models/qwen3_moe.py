"""Qwen3 MoE: attention with per-head norms on q and k, and routed experts in every layer or in every few."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.layers.attention import AttentionShape
from engine.layers.decoder import Decoder, FeedForward
from engine.layers.mlp import mlp_tensors
from engine.layers.moe import Moe
from engine.models import common
from engine.models.spec import Config, ModelSpec, Parts
from engine.weights.map import DenseTensor, WeightMap


def moe_layers(config: Config) -> list[int]:
    """The layers with experts; the others have one dense network."""
    dense, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)
    return [layer for layer in range(config["num_hidden_layers"]) if layer not in dense and (layer + 1) % step == 0]


def _shape(config: Config) -> AttentionShape:
    shape = replace(common.attention_shape(config), normed=True)
    return shape if config.get("use_sliding_window") else replace(shape, window=0)


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    shape, layers, sparse = _shape(config), config["num_hidden_layers"], moe_layers(config)
    dense = common.frame_tensors(config) | common.attention_layers([shape] * layers)
    for layer in range(layers):
        source = f"model.layers.{layer}.mlp"
        if layer in sparse:
            dense[f"layers.{layer}.moe.router"] = DenseTensor((f"{source}.gate.weight",), format="f32")
        else:
            dense |= mlp_tensors(f"layers.{layer}.mlp", source)
    geometry = common.geometry(
        config,
        shape,
        moe_layers=len(sparse),
        experts=common.expert_count(config),
        top_k=config["num_experts_per_tok"],
        expert_width=config["moe_intermediate_size"],
    )
    experts = tuple(common.qwen_experts(layer) for layer in sparse)
    return WeightMap(dense, geometry, experts, ignore=common.unused_sources(config))


def build(parts: Parts) -> Decoder:
    config, order = parts.config, {layer: index for index, layer in enumerate(moe_layers(parts.config))}

    def feed_forward(layer: int) -> FeedForward:
        name = f"layers.{layer}"
        if layer not in order:
            return common.mlp(parts, f"{name}.mlp")
        assert parts.experts is not None
        return Moe(
            ops=parts.ops,
            layer=order[layer],
            top_k=config["num_experts_per_tok"],
            router=parts.packed(f"{name}.moe.router"),
            experts=parts.experts,
            renormalise=bool(config.get("norm_topk_prob")),
        )

    return common.attention_decoder(parts, [_shape(config)] * config["num_hidden_layers"], feed_forward)


MODEL = ModelSpec(("qwen3_moe",), mapping, build)
