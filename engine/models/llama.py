"""Llama: grouped-query attention and a gated feed-forward network in every layer."""

from __future__ import annotations

from typing import Any

from engine.layers.decoder import Decoder
from engine.layers.mlp import mlp_tensors
from engine.models import common
from engine.models.spec import ModelSpec, Parts
from engine.weights.map import WeightMap


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    shape, layers = common.attention_shape(config), config["num_hidden_layers"]
    dense = common.frame_tensors(config) | common.attention_layers([shape] * layers)
    for layer in range(layers):
        dense |= mlp_tensors(f"layers.{layer}.mlp", f"model.layers.{layer}.mlp", bias=bool(config.get("mlp_bias")))
    return WeightMap(dense, common.geometry(config, shape), ignore=common.unused_sources(config))


def build(parts: Parts) -> Decoder:
    shapes = [common.attention_shape(parts.config)] * parts.config["num_hidden_layers"]
    return common.attention_decoder(parts, shapes, lambda layer: common.mlp(parts, f"layers.{layer}.mlp"))


MODEL = ModelSpec(("llama",), mapping, build)
