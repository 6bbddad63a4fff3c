"""Where a converter reads tensors from: names and lazy access, whatever the file format."""

from __future__ import annotations

from typing import Protocol

import torch


class TensorSource(Protocol):
    """Tensors under their Hugging Face names. Reading is lazy: only what is asked for is in memory."""

    @property
    def names(self) -> frozenset[str]: ...

    def read(self, name: str) -> torch.Tensor:
        """The tensor, in any float dtype. Raises KeyError for a name that is not in `names`, WeightsError when the file is bad."""

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        """`read(name)[expert]`, without reading the other experts where the file format allows it."""
