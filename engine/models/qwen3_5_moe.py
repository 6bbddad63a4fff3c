"""Qwen3.5 MoE: three gated DeltaNet layers to one of gated attention; routed experts beside a gated shared expert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.layers import rope
from engine.layers.attention import AttentionShape, attention_tensors
from engine.layers.decoder import Block, Decoder, Mixer
from engine.layers.delta import DeltaNet, DeltaShape, delta_tensors
from engine.layers.mlp import mlp_tensors
from engine.layers.moe import Moe
from engine.models import common
from engine.models.spec import Config, ModelSpec, Parts
from engine.weights.map import DenseTensor, WeightMap

_UNUSED = ("model.visual.", "mtp.")  # the vision tower and the draft layer


def layer_kinds(config: Config) -> list[str]:
    """ "linear_attention" or "full_attention" for each layer."""
    if config.get("layer_types"):
        return list(config["layer_types"])
    every = config.get("full_attention_interval", 4)
    return ["linear_attention" if (l + 1) % every else "full_attention" for l in range(config["num_hidden_layers"])]


def _attention_shape(config: Config) -> AttentionShape:
    return replace(common.attention_shape(config), gated=True, normed=True, centred=True)


def _delta_shape(config: Config) -> DeltaShape:
    return DeltaShape(
        k_heads=config["linear_num_key_heads"],
        v_heads=config["linear_num_value_heads"],
        k_dim=config["linear_key_head_dim"],
        v_dim=config["linear_value_head_dim"],
        conv_width=config["linear_conv_kernel_dim"],
    )


def mapping(config: dict[str, Any]) -> WeightMap:
    common.require_silu(config)
    shape, delta, kinds = _attention_shape(config), _delta_shape(config), layer_kinds(config)
    dense = common.frame_tensors(config, centred=True)
    experts = []
    for layer, kind in enumerate(kinds):
        name, source = f"layers.{layer}", f"model.layers.{layer}"
        if kind == "full_attention":
            dense |= attention_tensors(f"{name}.attention", f"{source}.self_attn", shape)
        else:
            dense |= delta_tensors(f"{name}.delta", f"{source}.linear_attn")
        dense[f"{name}.moe.router"] = DenseTensor((f"{source}.mlp.gate.weight",), format="f32")
        dense[f"{name}.moe.shared_gate"] = DenseTensor((f"{source}.mlp.shared_expert_gate.weight",), format="f32")
        dense |= mlp_tensors(f"{name}.moe.shared", f"{source}.mlp.shared_expert")
        experts.append(common.qwen_experts(layer))
    geometry = common.geometry(
        config,
        shape,
        attention_layers=kinds.count("full_attention"),
        state_layer_bytes=(delta.state_bytes,) * kinds.count("linear_attention"),
        moe_layers=len(kinds),
        experts=common.expert_count(config),
        top_k=config["num_experts_per_tok"],
        expert_width=config["moe_intermediate_size"],
    )
    return WeightMap(dense, geometry, tuple(experts), ignore=(*common.unused_sources(config), *_UNUSED))


def build(parts: Parts) -> Decoder:
    config = {"partial_rotary_factor": 0.25, **parts.config}
    shape, delta = _attention_shape(config), _delta_shape(config)
    table = rope.table(config, shape.head_dim, parts.window_tokens)
    blocks: list[Block] = []
    attention_layers = linear_layers = 0
    for layer, kind in enumerate(layer_kinds(config)):
        name = f"layers.{layer}"
        mixer: Mixer
        if kind == "full_attention":
            mixer = common.attention(parts, f"{name}.attention", attention_layers, shape, table)
            attention_layers += 1
        else:
            mixer = _delta_net(parts, f"{name}.delta", linear_layers, delta)
            linear_layers += 1
        norms = parts.norm(f"{name}.mixer_norm"), parts.norm(f"{name}.ffn_norm")
        blocks.append(Block(norms[0], mixer, norms[1], _moe(parts, f"{name}.moe", layer)))
    return Decoder(parts.ops, parts.packed("embedding"), blocks, parts.norm("norm"), common.head(parts))


def _delta_net(parts: Parts, name: str, layer: int, shape: DeltaShape) -> DeltaNet:
    return DeltaNet(
        ops=parts.ops,
        layer=layer,
        shape=shape,
        qkvz=parts.packed(f"{name}.qkvz"),
        ba=parts.packed(f"{name}.ba"),
        conv=parts.plain(f"{name}.conv"),
        decay=parts.plain(f"{name}.decay"),
        dt_bias=parts.plain(f"{name}.dt_bias"),
        norm=parts.norm(f"{name}.norm"),
        out=parts.packed(f"{name}.out"),
    )


def _moe(parts: Parts, name: str, layer: int) -> Moe:
    assert parts.experts is not None
    return Moe(
        ops=parts.ops,
        layer=layer,
        top_k=parts.config["num_experts_per_tok"],
        router=parts.packed(f"{name}.router"),
        experts=parts.experts,
        shared=common.mlp(parts, f"{name}.shared"),
        shared_gate=parts.packed(f"{name}.shared_gate"),
    )


MODEL = ModelSpec(("qwen3_5_moe", "qwen3_5_moe_text"), mapping, build)
