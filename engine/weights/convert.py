"""From a checkpoint to an FTW directory: the architecture's map says what becomes what, the writer packs and streams it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from engine import kernels, models
from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import FORMATS, Ops
from engine.weights.config import architecture, text_config
from engine.weights.manifest import Manifest, Progress
from engine.weights.map import DenseTensor, LayerExperts, WeightMap
from engine.weights.source import TensorSource
from engine.weights.writer import Expert, FtwWriter, staged

_T = TypeVar("_T")
CREATED_BY = "ftw-writer 1"  # changes whenever the same source would give other bytes


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What an FTW directory says about a model besides its weights. `tokenizer_json` and `chat_template` are file contents."""

    config: dict[str, Any]
    config_json: str
    tokenizer_json: str
    chat_template: str
    eos_token_ids: tuple[int, ...]
    dialect: str = "hermes"
    thinking: bool = False
    quality: str = ""
    window_tokens: int = 0  # 0: the geometry's maximum
    kv_dtype: str = "bf16"
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    source: str = ""


def convert(
    source: TensorSource,
    facts: ModelFacts,
    models_dir: Path,
    name: str,
    format: str,
    dense_format: str,
    progress: Progress | None = None,
) -> Path:
    """Write `models_dir/name` from `source` and return it; experts in `format`, other matrices in `dense_format`.

    `progress` counts tensors. Peak memory is a few tensors. Nothing appears under the final name until all is written. Raises Unsupported for an
    unknown architecture or format, WeightsError for a checkpoint that does not match its configuration.
    """
    for wanted in (format, dense_format):
        if wanted not in FORMATS:
            raise Unsupported(f"The format {wanted!r} is not one of {', '.join(FORMATS)}.")
    weight_map = weight_map_of(facts.config)
    check_coverage(source, weight_map)
    with staged(models_dir, name) as directory:
        count = _Counter(len(weight_map.dense) + len(weight_map.experts) * weight_map.geometry.experts, progress)
        with FtwWriter(directory, packing_ops()) as writer:
            for our_name, tensor in count.each(weight_map.dense.items()):
                writer.dense(our_name, build_dense(source, tensor), _format_of(tensor, dense_format))
            for layer in weight_map.experts:
                writer.bank(layer.layer, count.each(experts_of(source, layer, weight_map.geometry.experts)), format)
            _finish(writer, weight_map, facts, name)
    return models_dir / name


def weight_map_of(config: dict[str, Any]) -> WeightMap:
    """The map of the architecture that `config` names. Raises Unsupported when engine/models has no such file."""
    return models.get(architecture(config)).mapping(text_config(config))


def packing_ops() -> Ops:
    """The C++ packer when it is built, else the plain one; both give the same bytes."""
    try:
        return kernels.get("cpu")
    except (ImportError, Unsupported):
        return kernels.get("reference")


def check_coverage(source: TensorSource, weight_map: WeightMap) -> None:
    """Raises WeightsError when a mapped tensor is absent from `source`, or a tensor of `source` would be dropped."""
    wanted = {name for tensor in weight_map.dense.values() for name in tensor.sources}
    for layer in weight_map.experts:
        wanted |= _expert_names(source, layer, weight_map.geometry.experts)
    if missing := sorted(wanted - source.names):
        raise WeightsError(
            f"The checkpoint lacks {_some(missing)}.",
            "Check that every file of the model was copied and config.json fits.",
        )
    unused = sorted(name for name in source.names - wanted if not name.startswith(weight_map.ignore))
    if unused:
        raise WeightsError(f"The checkpoint has tensors that the architecture does not use: {_some(unused)}.")


def build_dense(source: TensorSource, tensor: DenseTensor) -> torch.Tensor:
    """The fp32 tensor of a map entry."""
    parts = [source.read(name).float() for name in tensor.sources]
    if tensor.build is not None:
        return tensor.build(parts)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def experts_of(source: TensorSource, layer: LayerExperts, experts: int) -> Iterator[Expert]:
    """(gate_up [2*width, hidden], down [hidden, width]) of each expert, read one at a time."""
    for expert in range(experts):
        if is_fused(source, layer):
            gate_up = source.read_expert(layer.fused_gate_up, expert)
            yield Expert(gate_up, source.read_expert(layer.fused_down, expert))
        else:
            gate, up, down = (
                source.read(pattern.format(expert=expert)) for pattern in (layer.gate, layer.up, layer.down)
            )
            yield Expert(torch.cat([gate, up]), down)


def is_fused(source: TensorSource, layer: LayerExperts) -> bool:
    """Whether the checkpoint keeps the layer's experts in fused tensors."""
    return layer.fused_gate_up != "" and layer.fused_gate_up in source.names


class _Counter:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def each(self, items: Iterable[_T]) -> Iterator[_T]:
        for item in items:
            yield item
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._total)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _expert_names(source: TensorSource, layer: LayerExperts, experts: int) -> set[str]:
    if is_fused(source, layer):
        return {layer.fused_gate_up, layer.fused_down}
    patterns = (layer.gate, layer.up, layer.down)
    return {pattern.format(expert=expert) for pattern in patterns for expert in range(experts)}


def _format_of(tensor: DenseTensor, dense_format: str) -> str:
    if not tensor.packed:
        return ""
    return tensor.format or dense_format


def _finish(writer: FtwWriter, weight_map: WeightMap, facts: ModelFacts, name: str) -> Manifest:
    writer.text("config.json", facts.config_json)
    writer.text("tokenizer.json", facts.tokenizer_json)
    writer.text("chat_template.jinja", facts.chat_template)
    return writer.finish(
        weight_map.geometry,
        name=name,
        arch=architecture(facts.config),
        created_by=CREATED_BY,
        kv_dtype=facts.kv_dtype,
        eos_token_ids=facts.eos_token_ids,
        dialect=facts.dialect,
        thinking=facts.thinking,
        quality=facts.quality,
        window_tokens=facts.window_tokens or weight_map.geometry.max_window_tokens,
        sampling_defaults=facts.sampling_defaults,
        source=facts.source,
    )
