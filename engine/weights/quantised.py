"""Matrices that a checkpoint already keeps in the codes of a weight format: carried as they are, so that their values stay
exactly the published ones.

Every format scales along the inputs of one output row, so rows can be picked and joined without touching a code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.errors import WeightsError
from engine.kernels.contract import Ops
from engine.quant import formats

Codes = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix [n, k]: the arrays of `engine.quant`'s `format`, each with the n rows as its first dimension. Outputs are always the
    rows, also where a float checkpoint of the same model stores the transposed matrix."""

    format: str
    codes: Codes
    k: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.codes[0]), self.k

    def rows(self, chosen: slice | NDArray[np.int64]) -> Quantised:
        """Those rows, in that order."""
        return Quantised(self.format, tuple(part[chosen] for part in self.codes), self.k)

    def float(self) -> torch.Tensor:
        """[n, k] fp32, the values that the codes stand for."""
        return torch.from_numpy(np.ascontiguousarray(formats()[self.format].dequantise(self.codes)[:, : self.k]))

    def pack(self) -> torch.Tensor:
        """The codes in kernel layout, uint8."""
        return torch.from_numpy(formats()[self.format].lay(self.codes))


Matrix = torch.Tensor | Quantised


def sound(matrix: Matrix, path: Path, name: str, expert: int = -1) -> Matrix:
    """The matrix, read from tensor `name` of file `path`, or from that expert of a stack. Raises WeightsError when its codes hold
    something that is no number, or that kernels would read as another one."""
    if isinstance(matrix, Quantised) and (fault := formats()[matrix.format].fault(matrix.codes)):
        raise WeightsError(
            f"{path}: {name}{f', expert {expert}' if expert >= 0 else ''} ({matrix.format}) holds {fault}.",
            "Get the file again from its source; if it is the same, quantise the model again.",
        )
    return matrix


def join(parts: Sequence[Matrix]) -> Matrix:
    """The rows of all parts: still quantised if all parts are, in one format; else fp32."""
    first = parts[0]
    if len(parts) == 1:
        return first
    same = [part for part in parts if isinstance(part, Quantised) and part.format == format_of(first)]
    if len(same) == len(parts):
        joined = tuple(np.concatenate(arrays) for arrays in zip(*(part.codes for part in same), strict=True))
        return Quantised(same[0].format, joined, same[0].k)
    return torch.cat([part.float() for part in parts])


def pick(matrix: Matrix, rows: NDArray[np.int64]) -> Matrix:
    """Those rows, in that order."""
    return matrix.rows(rows) if isinstance(matrix, Quantised) else matrix[torch.from_numpy(rows)]


def pick_inputs(matrix: Matrix, order: NDArray[np.int64]) -> Matrix:
    """Those inputs, in that order; still quantised where they move in whole blocks that share a scale."""
    if not isinstance(matrix, Quantised):
        return matrix[:, torch.from_numpy(order)]
    span = matrix.k // matrix.codes[-1].shape[1]
    starts = order[::span]
    if (
        len(order) % span
        or (starts % span).any()
        or (order.reshape(-1, span) != starts[:, None] + np.arange(span)).any()
    ):
        return matrix.float()[:, torch.from_numpy(order)]
    blocks = starts // span
    codes = tuple(part[:, blocks] if part.ndim > 1 else part for part in matrix.codes)
    return Quantised(matrix.format, codes, len(order))


def packed(matrix: Matrix, format: str, ops: Ops) -> torch.Tensor:
    """Kernel layout in `format`: the codes themselves where that is what they are, else rounded from fp32."""
    if isinstance(matrix, Quantised) and matrix.format == format:
        return matrix.pack()
    return ops.pack(matrix.float().contiguous(), format)


def format_of(matrix: Matrix) -> str:
    """The smallest kernel format that holds the matrix exactly; fp32 and fp16 tensors only fit "f32"."""
    if isinstance(matrix, Quantised):
        return matrix.format
    return "bf16" if matrix.dtype == torch.bfloat16 else "f32"
