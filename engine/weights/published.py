"""How quantised safetensors checkpoints keep a matrix: which tensors belong together, and their codes.

| name | beside it | what |
|---|---|---|
| `X_blocks` uint8 [.., n, k/32, 16] | `X_scales` E8M0 bytes [.., n, k/32] | MXFP4, as gpt-oss is published; the matrix is called X |
| `X` uint8 [.., n, k/2] | `X_scale` E4M3 [.., n, k/16], `X_scale_2` fp32 | NVFP4, as modelopt writes it |
| `X_packed` uint8 [.., n, k/2] | `X_scale` E4M3, `X_global_scale` fp32 | NVFP4, as compressed-tensors writes it: divided by the last, of which the fp32 reciprocal is kept |
| `X` E4M3 [.., n, k] | `X_scale_inv` [.., n/128, k/128] | FP8 in blocks, as DeepSeek and Qwen publish it |
| `X` E4M3 [.., n, k] | `X_scale`, one number or [n, 1] | FP8 with a scale per tensor or per output |

Two 4-bit codes share a byte, the earlier one in the lower half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.errors import Unsupported
from engine.quant import fp8
from engine.weights.config import text_config
from engine.weights.quantised import Quantised

Get = Callable[[str], torch.Tensor]  # a stored tensor by its own name, or one expert's part of it
FP8_BLOCK = (128, 128)
_CALIBRATION = (
    ".input_scale",
    ".input_global_scale",
    ".activation_scale",
    ".k_scale",
    ".v_scale",
)  # of activations, which are not quantised here


@dataclass(frozen=True, slots=True)
class Stored:
    """A quantised matrix: its format and the stored names of its parts, codes first."""

    format: str
    parts: tuple[str, ...]
    divided: bool = False  # by its last part


def find(dtypes: Mapping[str, str], block: tuple[int, int] = FP8_BLOCK) -> tuple[dict[str, Stored], set[str]]:
    """(quantised matrices by name, names that belong to them) among tensors with these safetensors dtypes.

    Raises Unsupported when FP8 scales span inputs (`block[1]`) in a way the kernels' 128 cannot follow.
    """
    found: dict[str, Stored] = {}
    for name, dtype in dtypes.items():
        if name.endswith("_blocks") and (scales := f"{name.removesuffix('_blocks')}_scales") in dtypes:
            found[name.removesuffix("_blocks")] = Stored("mxfp4", (name, scales))
        elif dtype == "U8" and f"{name}_scale" in dtypes and f"{name}_scale_2" in dtypes:
            found[name] = Stored("nvfp4", (name, f"{name}_scale", f"{name}_scale_2"))
        elif name.endswith("_packed") and f"{name.removesuffix('_packed')}_global_scale" in dtypes:
            base = name.removesuffix("_packed")
            found[base] = Stored("nvfp4", (name, f"{base}_scale", f"{base}_global_scale"), divided=True)
        elif dtype == "F8_E4M3" and (scale := _scale_of(name, dtypes)):
            found[name] = Stored("fp8", (name, scale))
    if block[1] % fp8.SCALED and any(stored.format == "fp8" for stored in found.values()):
        raise Unsupported(f"FP8 scales over {block[1]} inputs are not offered.", f"Use a checkpoint with {fp8.SCALED}.")
    used = {part for stored in found.values() for part in stored.parts}
    return found, used | {name for name in dtypes if found and name.endswith(_CALIBRATION)}


def read(stored: Stored, get: Get, block: tuple[int, int] = FP8_BLOCK) -> Quantised:
    """The matrix; `get` gives its parts without leading dimensions."""
    codes, *scales = (get(part) for part in stored.parts)
    if stored.format == "mxfp4":
        return Quantised("mxfp4", (_bytes(scales[0]), _halves(_bytes(codes))), 32 * codes.shape[-2])
    if stored.format == "nvfp4":
        n, half = codes.shape
        factor = scales[1].float().reshape(()).numpy()
        row = np.full(n, np.float32(1) / factor if stored.divided else factor, dtype=np.float32)
        return Quantised("nvfp4", (row, _bytes(scales[0]), _halves(_bytes(codes)).reshape(n, -1, 16)), 2 * half)
    n, k = codes.shape
    full = np.pad(_bytes(codes), [(0, 0), (0, -k % fp8.SCALED)]).reshape(n, -1, fp8.SCALED)
    return Quantised("fp8", (_fp8_scales(scales[0].float().numpy(), n, k, block), full), k)


def shape(stored: Stored, held: tuple[int, ...]) -> tuple[int, ...]:
    """Of the matrix or stack whose codes are stored as a tensor of shape `held`."""
    if stored.format == "mxfp4":
        return (*held[:-2], 32 * held[-2])
    return (*held[:-1], 2 * held[-1]) if stored.format == "nvfp4" else held


def _scale_of(name: str, dtypes: Mapping[str, str]) -> str:
    return next((scale for end in ("_scale_inv", "_scale") if (scale := f"{name}{end}") in dtypes), "")


def _fp8_scales(scale: NDArray[np.float32], n: int, k: int, block: tuple[int, int]) -> NDArray[np.float32]:
    """[n, k / 128], whatever the stored scale spans."""
    blocks = -(-k // fp8.SCALED)
    if scale.size == 1:
        return np.full((n, blocks), scale.reshape(-1)[0], dtype=np.float32)
    if scale.reshape(-1).shape == (n,):
        return np.repeat(scale.reshape(n, 1), blocks, axis=1)
    rows, inputs = block
    return scale.repeat(rows, axis=0)[:n].repeat(inputs // fp8.SCALED, axis=1)[:, :blocks]


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    return tensor.contiguous().view(torch.uint8).numpy()


def _halves(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[.., m] bytes -> [.., 2m] codes."""
    return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(*packed.shape[:-1], -1)


def block_size(config: Mapping[str, Any]) -> tuple[int, int]:
    """(outputs, inputs) that share an FP8 scale, from a model's configuration."""
    quantisation = config.get("quantization_config") or text_config(dict(config)).get("quantization_config") or {}
    rows, inputs = quantisation.get("weight_block_size") or FP8_BLOCK
    return int(rows), int(inputs)
