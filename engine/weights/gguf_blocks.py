"""GGUF's number formats: those that kernels read come out as they are, floats in their own width, all others as fp32."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from engine.weights.quantised import Matrix, Quantised

_Q = gguf.GGMLQuantizationType
_KINDS = {
    _Q.F32: "f32",
    _Q.F16: "f16",
    _Q.BF16: "bf16",
    _Q.Q4_0: "q4_0",
    _Q.Q8_0: "q8_0",
    _Q.MXFP4: "mxfp4",
    _Q.NVFP4: "nvfp4",
}
_E4M3_NAN = 0x7F


def kind(type_: Any) -> str:
    """A kernel format where one holds the type's values exactly, "f16", or GGUF's own name."""
    return _KINDS.get(type_, str(type_.name))


def decode(data: NDArray[Any], type_: Any, scale: float = 1.0) -> Matrix:
    """A matrix [n, ..] of a file's rows, or a vector. `scale` multiplies an NVFP4 matrix. Raises what gguf raises on unknown types."""
    if type_ == _Q.BF16:
        return torch.from_numpy(data.view(np.int16).copy()).view(torch.bfloat16)
    if type_ in (_Q.F32, _Q.F16):
        return torch.from_numpy(np.array(data))
    if data.ndim == 2 and type_ in _EXACT:
        return _EXACT[type_](data, scale)
    return torch.from_numpy(np.array(gguf.quants.dequantize(data, type_), dtype=np.float32))


def _blocks(data: NDArray[np.uint8], n_bytes: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(data).reshape(len(data), -1, n_bytes)


def _nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The lower halves of the bytes come first, then the upper halves."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


def _q4_0(data: NDArray[np.uint8], scale: float) -> Quantised:
    blocks = _blocks(data, 18)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    return Quantised("q4_0", (scales, _nibbles(blocks[..., 2:])), 32 * blocks.shape[1])


def _q8_0(data: NDArray[np.uint8], scale: float) -> Quantised:
    blocks = _blocks(data, 34)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    return Quantised("q8_0", (scales, blocks[..., 2:].view(np.int8)), 32 * blocks.shape[1])


def _mxfp4(data: NDArray[np.uint8], scale: float) -> Quantised:
    blocks = _blocks(data, 17)
    return Quantised("mxfp4", (blocks[..., 0], _nibbles(blocks[..., 1:])), 32 * blocks.shape[1])


def _nvfp4(data: NDArray[np.uint8], scale: float) -> Quantised:
    """64 inputs: four unsigned E4M3 scales, whose NaN counts as zero, then four times eight bytes."""
    blocks = _blocks(data, 36)
    n, count, _ = blocks.shape
    scales = (blocks[..., :4] & np.uint8(0x7F)).reshape(n, -1)
    codes = _nibbles(blocks[..., 4:].reshape(n, 4 * count, 8))
    row = np.full(n, scale, dtype=np.float32)
    return Quantised("nvfp4", (row, np.where(scales == _E4M3_NAN, np.uint8(0), scales), codes), 64 * count)


_EXACT = {_Q.Q4_0: _q4_0, _Q.Q8_0: _q8_0, _Q.MXFP4: _mxfp4, _Q.NVFP4: _nvfp4}
