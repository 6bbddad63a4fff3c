"""A checkpoint as its FTW copy holds it: the exact values that the kernels multiply with, under the original names.

For comparing a served model with another implementation: both then compute on the same numbers.
"""

from __future__ import annotations

import torch

from engine.kernels.contract import Packed
from engine.weights.choice import choose, matrix_names
from engine.weights.convert import packing_ops
from engine.weights.map import WeightMap
from engine.weights.quantised import Matrix, Quantised
from engine.weights.source import TensorSource


class RoundedSource:
    """A `TensorSource` that packs and unpacks every tensor of `source` in the format the converter would choose."""

    def __init__(self, source: TensorSource, weight_map: WeightMap, format: str, dense_format: str) -> None:
        self._source = source
        self._formats: dict[str, str] = {}
        self._transposed: set[str] = set()
        chosen = choose(source, weight_map, format, dense_format)
        for ours, kept in chosen.dense.items():
            self._formats.update(dict.fromkeys(weight_map.dense[ours].sources, kept))
        for layer in weight_map.experts:
            names = matrix_names(source, layer, weight_map.geometry.experts)
            self._formats.update(dict.fromkeys(names, chosen.experts))
            if layer.transposed:
                self._transposed.update(names)

    @property
    def names(self) -> frozenset[str]:
        return self._source.names

    def read(self, name: str) -> torch.Tensor:
        return self._round(name, self._source.read(name))

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self._round(name, self._source.read_expert(name, expert))

    def kind(self, name: str) -> str:
        return self._formats.get(name) or self._source.kind(name)

    def _round(self, name: str, stored: Matrix) -> torch.Tensor:
        format, tensor = self._formats.get(name, ""), stored.float()
        if not format or (isinstance(stored, Quantised) and stored.format == format):
            return tensor
        swap = name in self._transposed and isinstance(stored, torch.Tensor)
        whole = tensor.mT if swap else tensor
        # Rows are packed independently, so a stack of matrices is rounded like each of them.
        ops, matrix = packing_ops(), whole.reshape(-1, whole.shape[-1])
        packed = Packed(ops.pack(matrix, format), format, *matrix.shape)
        rounded = ops.unpack(packed).view(whole.shape)
        return rounded.mT if swap else rounded
