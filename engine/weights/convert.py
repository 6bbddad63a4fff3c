"""From a checkpoint to an FTW directory: the architecture's map says what becomes what, the writer packs and streams it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from engine import kernels, models
from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import Ops
from engine.memory.geometry import Geometry
from engine.weights.choice import bias_of, choose, is_fused, matrix_names
from engine.weights.config import architecture, text_config
from engine.weights.manifest import Manifest, Progress
from engine.weights.map import DenseTensor, LayerExperts, WeightMap
from engine.weights.plausible import File, Spell, check_config
from engine.weights.quantised import Matrix, join, pick
from engine.weights.source import TensorSource
from engine.weights.writer import Expert, FtwWriter, staged

_T = TypeVar("_T")
CREATED_BY = "ftw-writer 2"  # changes whenever the same source would give other bytes


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
    template_family: str = ""
    quality: str = ""
    window_tokens: int = 0  # 0: the geometry's maximum
    kv_dtype: str = "bf16"
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()  # sentences about what is not as the model's authors meant it


def convert(
    source: TensorSource,
    facts: ModelFacts,
    models_dir: Path,
    name: str,
    format: str,
    dense_format: str,
    progress: Progress | None = None,
) -> Path:
    """Write `models_dir/name` from `source` and return it; experts in `format`, other matrices in `dense_format`; "keep" is the
    checkpoint's own format (see `engine.weights.choice`, which also says what it comes to). What is already in the format
    asked for stays exactly as published.

    `progress` counts tensors. Peak memory is a few tensors. Nothing appears under the final name until all is written. Raises
    Unsupported for an unknown architecture or format, WeightsError for a checkpoint that does not match its configuration.
    """
    weight_map = weight_map_of(facts.config)
    check_coverage(source, weight_map)
    chosen = choose(source, weight_map, format, dense_format)
    with staged(models_dir, name) as directory:
        count = _Counter(len(weight_map.dense) + len(weight_map.experts) * weight_map.geometry.experts, progress)
        with FtwWriter(directory, packing_ops()) as writer:
            for our_name, tensor in count.each(weight_map.dense.items()):
                writer.dense(our_name, build_dense(source, tensor), chosen.dense.get(our_name, ""))
            for layer in weight_map.experts:
                experts = count.each(experts_of(source, layer, weight_map.geometry.experts))
                writer.bank(layer.layer, experts, chosen.experts, layer.activation)
            write_facts(writer, weight_map, facts, name)
    return models_dir / name


def weight_map_of(config: dict[str, Any], file: File = "config.json", spell: Spell = str) -> WeightMap:
    """The map of the architecture that `config`, read from `file`, names. Raises Unsupported when engine/models has no such file,
    WeightsError for numbers that no model has."""
    model = models.get(architecture(config))
    check_config(config, file, spell)
    return model.mapping(text_config(config))


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
        matrices = matrix_names(source, layer, weight_map.geometry.experts)
        wanted.update(matrices)
        if layer.bias:
            wanted.update(bias_of(name) for name in matrices)
    if missing := sorted(wanted - source.names):
        raise WeightsError(
            f"The checkpoint lacks {_some(missing)}.",
            "Check that every file of the model was copied and config.json fits.",
        )
    unused = sorted(name for name in source.names - wanted if not name.startswith(weight_map.ignore))
    if unused:
        raise WeightsError(f"The checkpoint has tensors that the architecture does not use: {_some(unused)}.")


def build_dense(source: TensorSource, tensor: DenseTensor) -> Matrix:
    """The tensor of a map entry."""
    parts = [source.read(name) for name in tensor.sources]
    if tensor.build is not None:
        return tensor.build([part.float() for part in parts])
    whole = join(parts)
    return whole if tensor.rows is None else pick(whole, tensor.rows)


def experts_of(source: TensorSource, layer: LayerExperts, experts: int) -> Iterator[Expert]:
    """The experts of a layer, read one at a time."""
    return (expert_of(source, layer, expert) for expert in range(experts))


def expert_of(source: TensorSource, layer: LayerExperts, expert: int) -> Expert:
    """One expert of a layer."""
    return _fused(source, layer, expert) if is_fused(source, layer) else _separate(source, layer, expert)


def _separate(source: TensorSource, layer: LayerExperts, expert: int) -> Expert:
    gate, up, down = (pattern.format(expert=expert) for pattern in (layer.gate, layer.up, layer.down))
    bias = None
    if layer.bias:
        bias = torch.cat([source.read(bias_of(name)).float() for name in (gate, up, down)])
    return Expert(join([source.read(gate), source.read(up)]), source.read(down), bias)


def _fused(source: TensorSource, layer: LayerExperts, expert: int) -> Expert:
    names = (layer.fused_gate_up, layer.fused_down)
    gate_up, down = (outputs_first(source.read_expert(name, expert), layer) for name in names)
    biases = [source.read_expert(bias_of(name), expert).float() for name in names] if layer.bias else []
    if layer.alternating:
        rows = np.arange(gate_up.shape[0])
        order = np.concatenate([rows[::2], rows[1::2]])
        gate_up, biases[:1] = pick(gate_up, order), [bias[torch.from_numpy(order)] for bias in biases[:1]]
    return Expert(gate_up, down, torch.cat(biases) if biases else None)


def outputs_first(matrix: Matrix, layer: LayerExperts) -> Matrix:
    """A fused expert matrix as [outputs, inputs]."""
    return matrix.T if layer.transposed and isinstance(matrix, torch.Tensor) else matrix


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


class Target(Protocol):
    """What takes the side files and the manifest of a model."""

    def text(self, file: str, text: str) -> None: ...

    def finish(self, geometry: Geometry, **facts: Any) -> Manifest: ...


def write_facts(writer: Target, weight_map: WeightMap, facts: ModelFacts, name: str) -> Manifest:
    """Write the side files and, last, the manifest."""
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
        template_family=facts.template_family,
        quality=facts.quality,
        window_tokens=facts.window_tokens or weight_map.geometry.max_window_tokens,
        sampling_defaults=facts.sampling_defaults,
        source=facts.source,
    )
