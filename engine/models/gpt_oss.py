"""gpt-oss: attention with sinks, in every other layer over a sliding window; experts with biases and a clamped activation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.errors import Unsupported
from engine.layers.attention import AttentionShape
from engine.layers.decoder import Decoder
from engine.layers.moe import Moe
from engine.models import common
from engine.models.spec import Config, ModelSpec, Parts
from engine.weights.map import DenseTensor, LayerExperts, WeightMap

_KERNEL_SWIGLU = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}


def attention_shapes(config: Config) -> list[AttentionShape]:
    """One shape for each layer."""
    layers = config["num_hidden_layers"]
    kinds = config.get("layer_types") or ["full_attention" if l % 2 else "sliding_attention" for l in range(layers)]
    full = replace(common.attention_shape({"attention_bias": True, **config}), sinks=True, window=0)
    sliding = replace(full, window=config.get("sliding_window") or 0)
    return [sliding if kind == "sliding_attention" else full for kind in kinds]


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    for key, value in _KERNEL_SWIGLU.items():
        if config.get(key, value) != value:
            raise Unsupported(f"{key} {config[key]} is not offered.", f"Use a checkpoint with {value}.")
    shapes = attention_shapes(config)
    dense = common.frame_tensors(config) | common.attention_layers(shapes)
    experts = []
    for layer in range(len(shapes)):
        name, source = f"layers.{layer}.moe", f"model.layers.{layer}.mlp"
        dense[f"{name}.router"] = DenseTensor((f"{source}.router.weight",), format="f32")
        dense[f"{name}.router_bias"] = DenseTensor((f"{source}.router.bias",), packed=False)
        experts.append(_experts(layer))
    geometry = common.geometry(
        config,
        shapes[0],
        moe_layers=len(shapes),
        experts=common.expert_count(config),
        top_k=config["num_experts_per_tok"],
        expert_width=config["intermediate_size"],
    )
    return WeightMap(dense, geometry, tuple(experts), ignore=common.unused_sources(config))


def _experts(layer: int) -> LayerExperts:
    return replace(common.qwen_experts(layer), transposed=True, alternating=True, bias=True, activation="swiglu_oai")


def build(parts: Parts) -> Decoder:
    def moe(layer: int) -> Moe:
        assert parts.experts is not None
        return Moe(
            ops=parts.ops,
            layer=layer,
            top_k=parts.config["num_experts_per_tok"],
            router=parts.packed(f"layers.{layer}.moe.router"),
            experts=parts.experts,
            router_bias=parts.plain(f"layers.{layer}.moe.router_bias"),
        )

    return common.attention_decoder(parts, attention_shapes(parts.config), moe)


MODEL = ModelSpec(("gpt_oss",), mapping, build)
