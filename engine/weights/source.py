"""Where a converter reads tensors from: names and lazy access, whatever the file format."""

from __future__ import annotations

from typing import Protocol

from engine.weights.quantised import Matrix


class TensorSource(Protocol):
    """Tensors under their Hugging Face names. Reading is lazy: only what is asked for is in memory."""

    @property
    def names(self) -> frozenset[str]: ...

    def read(self, name: str) -> Matrix:
        """The tensor, in any float dtype or as quantised matrix. Raises WeightsError for a
        name that is not in `names`, and when the file is bad."""

    def read_expert(self, name: str, expert: int) -> Matrix:
        """`read(name)[expert]` of a stack of matrices or vectors, without reading the other experts where the file format allows
        it."""

    def kind(self, name: str) -> str:
        """How the file keeps the numbers of `name`: a kernel format ("bf16", "mxfp4", …) if one holds them exactly, else a name of
        the file's own ("f16", "Q4_K", …)."""
