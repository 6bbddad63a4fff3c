"""A checkpoint as its FTW copy holds it: the exact values that the kernels multiply with, under the original names.

For comparing a served model with another implementation: both then compute on the same numbers.
"""

from __future__ import annotations

import torch

from engine.kernels.contract import Packed
from engine.weights.convert import is_fused, packing_ops
from engine.weights.map import WeightMap
from engine.weights.source import TensorSource


class RoundedSource:
    """A `TensorSource` that packs and unpacks every tensor of `source` in the format the converter would choose."""

    def __init__(self, source: TensorSource, weight_map: WeightMap, format: str, dense_format: str) -> None:
        self._source = source
        self._formats: dict[str, str] = {}
        for tensor in weight_map.dense.values():
            for name in tensor.sources if tensor.packed else ():
                self._formats[name] = tensor.format or dense_format
        for layer in weight_map.experts:
            if is_fused(source, layer):
                names = [layer.fused_gate_up, layer.fused_down]
            else:
                patterns = (layer.gate, layer.up, layer.down)
                names = [p.format(expert=e) for p in patterns for e in range(weight_map.geometry.experts)]
            self._formats.update(dict.fromkeys(names, format))

    @property
    def names(self) -> frozenset[str]:
        return self._source.names

    def read(self, name: str) -> torch.Tensor:
        return self._round(name, self._source.read(name).float())

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self._round(name, self._source.read_expert(name, expert).float())

    def _round(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        format = self._formats.get(name, "")
        if not format:
            return tensor
        # Rows are packed independently, so a stack of matrices is rounded like each of them.
        ops, matrix = packing_ops(), tensor.reshape(-1, tensor.shape[-1])
        packed = Packed(ops.pack(matrix, format), format, *matrix.shape)
        return ops.unpack(packed).view(tensor.shape)
