"""What a file in engine/models offers: how weights are mapped, and how the model is built from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from engine.kernels.contract import Ops, Packed
from engine.layers.decoder import Decoder
from engine.layers.moe import Experts
from engine.layers.norm import Norm
from engine.weights.map import WeightMap

Config = Mapping[str, Any]  # the text model's part of config.json


@dataclass(frozen=True, slots=True)
class Parts:
    """What a model is built from. `dense` holds the tensors under the names of the architecture's own `mapping`."""

    config: Config
    dense: Mapping[str, Packed | torch.Tensor]
    ops: Ops
    experts: Experts | None  # None for a dense architecture
    window_tokens: int  # positions the rotary tables must cover

    def packed(self, name: str) -> Packed:
        tensor = self.dense[name]
        assert isinstance(tensor, Packed), name
        return tensor

    def plain(self, name: str) -> torch.Tensor:
        tensor = self.dense[name]
        assert isinstance(tensor, torch.Tensor), name
        return tensor

    def bias(self, name: str) -> torch.Tensor | None:
        """A tensor that only some checkpoints have."""
        return self.plain(name) if name in self.dense else None

    def norm(self, name: str) -> Norm:
        return Norm(self.plain(name), float(self.config["rms_norm_eps"]))


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """`model_types` are the values of config.json's `model_type` this file understands. `mapping` raises Unsupported for a
    variant it does not compute exactly."""

    model_types: tuple[str, ...]
    mapping: Callable[[dict[str, Any]], WeightMap]
    build: Callable[[Parts], Decoder]
