"""How an architecture's published tensors become FTW tensors: plain data that a model file fills and the converter reads.

A model file (`engine/models/<arch>.py`) offers `MODEL.mapping(config) -> WeightMap`, where `config` is the dictionary of the
text model (see `engine.weights.config.text_config`). Source names are those of Hugging Face checkpoints, with the multimodal
prefix `model.language_model.` already shortened to `model.`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.memory.geometry import Geometry

if TYPE_CHECKING:
    import torch

Build = Callable[[Sequence["torch.Tensor"]], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class DenseTensor:
    """One tensor outside the experts.

    `sources` are concatenated along their first dimension (so that q, k and v can be one matrix), then put into the order of
    `rows` (indices into the whole) when given; `build`, when given, gets them in fp32 instead and returns the tensor. A `packed` tensor is an [n, k] matrix stored in kernel layout as a `Packed`,
    in `format` (empty: the dense format asked for at conversion; name "f32" for routers and other small, sensitive ones).
    Others are stored as plain fp32 of any shape.
    """

    sources: tuple[str, ...]
    packed: bool = True
    format: str = ""
    build: Build | None = None
    rows: NDArray[np.int64] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LayerExperts:
    """The experts of one layer, in whichever of two forms the checkpoint has.

    Separate: `gate`, `up` [width, hidden] and `down` [hidden, width] are name patterns with `{expert}`, each ending in `.weight`.
    Fused: `fused_gate_up` [experts, 2*width, hidden] (gate rows first) and `fused_down` [experts, hidden, width].
    `transposed`: fused float tensors have inputs before outputs. `alternating`: fused gate and up outputs take turns.
    `bias`: each matrix has one, named by `.bias` instead of `.weight`, or by `_bias` behind a fused tensor's name.
    """

    layer: int  # index in the model, dense layers counted
    gate: str
    up: str
    down: str
    fused_gate_up: str = ""
    fused_down: str = ""
    transposed: bool = False
    alternating: bool = False
    bias: bool = False
    activation: str = "silu"  # see engine.kernels.contract.ExpertShape


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Everything the converter needs of an architecture.

    `dense` maps our names to their sources. `geometry` has `expert_bytes`, `bank_bytes` and `dense_bytes` left at 0: the
    writer knows the formats and fills them in. `ignore` are source name prefixes that are known and not used; a tensor of the
    checkpoint that is neither mapped nor ignored is an error, because it would be silently dropped.
    """

    dense: dict[str, DenseTensor]
    geometry: Geometry
    experts: tuple[LayerExperts, ...] = ()
    ignore: tuple[str, ...] = field(default=())
