"""Whether a checkpoint's tensors are those that its configuration describes, from their names and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from engine.errors import WeightsError
from engine.weights.choice import is_fused
from engine.weights.config import head_dim, text_config
from engine.weights.convert import check_coverage, weight_map_of
from engine.weights.map import LayerExperts, WeightMap
from engine.weights.plausible import HINT, File, Spell
from engine.weights.shapes import dense_shapes
from engine.weights.source import TensorSource

_LAYER = "model.layers."
_EXPERTS = ("num_experts", "num_local_experts")
_LINEAR = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
# What makes the shape of a tensor, by the middle of its name; the first that fits counts.
_KEYS = {
    "embed_tokens": ("vocab_size", "hidden_size"),
    "lm_head": ("vocab_size", "hidden_size"),
    ".linear_attn.": (*_LINEAR, "linear_conv_kernel_dim", "hidden_size"),
    ".k_proj": ("num_key_value_heads", "head_dim", "hidden_size"),
    ".v_proj": ("num_key_value_heads", "head_dim", "hidden_size"),
    ".self_attn.": ("num_attention_heads", "head_dim", "hidden_size"),
    ".shared_expert": ("shared_expert_intermediate_size", "hidden_size"),
    ".experts.": (*_EXPERTS, "moe_intermediate_size", "intermediate_size", "hidden_size"),
    ".mlp.gate.": (*_EXPERTS, "hidden_size"),
    ".block_sparse_moe.gate.": (*_EXPERTS, "hidden_size"),
    ".router.": (*_EXPERTS, "hidden_size"),
    ".mlp.": ("intermediate_size", "hidden_size"),
}


class ShapedSource(TensorSource, Protocol):
    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor as its model has it. Raises WeightsError for a name that is not in `names`."""


def check_agreement(source: ShapedSource, config: dict[str, Any], file: File, spell: Spell = str) -> WeightMap:
    """The map of the architecture, every tensor of which `source` holds in the right shape. Raises WeightsError naming what is
    missing, or the tensor and the numbers of `file` that contradict each other; Unsupported as `weight_map_of` does.

    Costs as much as the checkpoint has tensors, whatever the configuration says.
    """
    weight_map, text = weight_map_of(config, file, spell), text_config(config)
    found = {int(name[len(_LAYER) :].partition(".")[0]) for name in source.names if _is_layer(name)}
    layers = text["num_hidden_layers"]
    if len(found) != layers or (found and max(found) >= layers):
        held = f"layers 0 to {max(found)}" if found and len(found) == max(found) + 1 else f"{len(found)} layers"
        raise WeightsError(
            f"{file}: {spell('num_hidden_layers')} is {layers}, but the tensors are of {held}.",
            "Check that every file of the model was copied and belongs to it.",
        )
    _compare(source, dense_shapes(text).items(), text, file, spell)
    check_coverage(source, weight_map)
    for layer in weight_map.experts:
        _compare(source, _expert_shapes(source, layer, weight_map), text, file, spell)
    return weight_map


def _is_layer(name: str) -> bool:
    return name.startswith(_LAYER) and name[len(_LAYER) :].partition(".")[0].isdecimal()


def _expert_shapes(
    source: TensorSource, layer: LayerExperts, weight_map: WeightMap
) -> Iterable[tuple[str, tuple[int, ...]]]:
    geometry = weight_map.geometry
    experts, hidden, width = geometry.experts, geometry.hidden_size, geometry.expert_width
    if is_fused(source, layer):
        up, down = (experts, 2 * width, hidden), (experts, hidden, width)
        floats = source.kind(layer.fused_gate_up) in ("f32", "f16", "bf16")
        turn = (0, 2, 1) if layer.transposed and floats else (0, 1, 2)
        yield layer.fused_gate_up, tuple(up[i] for i in turn)
        yield layer.fused_down, tuple(down[i] for i in turn)
        return
    for expert in range(experts):
        yield layer.gate.format(expert=expert), (width, hidden)
        yield layer.up.format(expert=expert), (width, hidden)
        yield layer.down.format(expert=expert), (hidden, width)


def _compare(
    source: ShapedSource,
    expected: Iterable[tuple[str, tuple[int, ...]]],
    text: dict[str, Any],
    file: File,
    spell: Spell,
) -> None:
    for name, shape in expected:
        if name not in source.names or _essential(held := source.shape(name)) == _essential(shape):
            continue
        keys = next((keys for part, keys in _KEYS.items() if part in name), ("hidden_size",))
        values = {**text, "head_dim": head_dim(text)}
        said = ", ".join(f"{spell(key)} {values[key]}" for key in keys if values.get(key) is not None)
        raise WeightsError(f"{file}: {name} is {_text(held)}, but {said} make it {_text(shape)}.", HINT)


def _essential(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Formats differ in whether they keep dimensions of one."""
    return tuple(n for n in shape if n != 1)


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "empty"
