"""Which format each matrix gets: the one asked for, or the one its checkpoint has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.errors import Unsupported
from engine.kernels.contract import FORMATS
from engine.weights.map import LayerExperts, WeightMap
from engine.weights.source import TensorSource

KEEP = "keep"
_ROUNDED = {"f16": "bf16"}  # kinds of numbers without a kernel format of their own
_REQUANTISED = "q8_0"  # other quantised kinds: close to lossless over four to six bits


@dataclass(frozen=True, slots=True)
class Choice:
    """`experts` is the format of every bank, "" without experts; `dense` that of each packed tensor by our name. `notes` say in
    sentences what is kept and what is rounded."""

    experts: str
    dense: Mapping[str, str]
    notes: tuple[str, ...]


def choose(source: TensorSource, weight_map: WeightMap, format: str, dense_format: str) -> Choice:
    """Formats of the experts and of the other matrices, either of them asked for by name or "keep". Raises Unsupported for a name
    that is neither.

    All experts share a format: kept if the whole checkpoint has one that kernels read.
    """
    for wanted in (format, dense_format):
        if wanted not in (*FORMATS, KEEP):
            raise Unsupported(f"The format {wanted!r} is not one of {KEEP}, {', '.join(FORMATS)}.")
    notes, experts = [], ""
    if weight_map.experts:
        names = [n for layer in weight_map.experts for n in matrix_names(source, layer, weight_map.geometry.experts)]
        kinds = Counter(source.kind(name) for name in names)
        experts = _common(kinds) if format == KEEP else format
        notes.append(_note("Experts", kinds, {experts}))
    dense: dict[str, str] = {}
    free: Counter[str] = Counter()
    for name, tensor in weight_map.dense.items():
        if not tensor.packed:
            continue
        found = Counter(source.kind(part) for part in tensor.sources)
        dense[name] = tensor.format or (_common(found) if dense_format == KEEP else dense_format)
        if not tensor.format:
            free += found
    if free:
        notes.append(
            _note("Other matrices", free, {dense[n] for n, t in weight_map.dense.items() if t.packed and not t.format})
        )
    return Choice(experts, dense, tuple(notes))


def matrix_names(source: TensorSource, layer: LayerExperts, experts: int) -> list[str]:
    """The source's names of the layer's expert matrices, in whichever form it has them."""
    if is_fused(source, layer):
        return [layer.fused_gate_up, layer.fused_down]
    patterns = (layer.gate, layer.up, layer.down)
    return [pattern.format(expert=expert) for pattern in patterns for expert in range(experts)]


def bias_of(name: str) -> str:
    """The name of the bias of an expert matrix."""
    return f"{name.removesuffix('.weight')}.bias" if name.endswith(".weight") else f"{name}_bias"


def is_fused(source: TensorSource, layer: LayerExperts) -> bool:
    """Whether the checkpoint keeps the layer's experts in fused tensors."""
    return layer.fused_gate_up != "" and layer.fused_gate_up in source.names


def _common(kinds: Mapping[str, int]) -> str:
    """The format for matrices of these kinds when nobody asked for one."""
    formats = {kind if kind in FORMATS else _ROUNDED.get(kind, _REQUANTISED) for kind in kinds}
    if len(formats) == 1:
        return formats.pop()
    return "bf16" if formats <= {"f32", "bf16"} else _REQUANTISED


def _note(what: str, kinds: Mapping[str, int], formats: Iterable[str]) -> str:
    stored = ", ".join(sorted(kinds, key=lambda kind: -kinds[kind]))
    used = ", ".join(sorted(formats))
    if set(kinds) == set(formats):
        return f"{what} are kept as {used}."
    return f"{what} are {stored} in the checkpoint and become {used}."
