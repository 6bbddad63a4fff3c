"""Hugging Face checkpoints: one `model.safetensors`, or shards listed in `model.safetensors.index.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import WeightsError

_INDEX = "model.safetensors.index.json"
_MULTIMODAL_PREFIX = "model.language_model."


class SafetensorsSource:
    """A `TensorSource` over a directory. Files are mapped, tensors are read when asked for.

    Names of multimodal checkpoints lose their `model.language_model.` prefix. Raises WeightsError when a file is missing,
    cut or not safetensors.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handles: dict[Path, Any] = {}
        self._where: dict[str, tuple[Path, str]] = {}
        for path in _files(directory):
            for name in self._open(path).keys():  # noqa: SIM118 (a safetensors handle is not a mapping)
                self._where[_short(name)] = (path, name)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._where)

    def read(self, name: str) -> torch.Tensor:
        path, stored = self._where[name]
        return self._tensor(path, self._handles[path].get_tensor(stored))

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        path, stored = self._where[name]
        return self._tensor(path, self._handles[path].get_slice(stored)[expert : expert + 1][0])

    def kind(self, name: str) -> str:
        path, stored = self._where[name]
        dtype = self._handles[path].get_slice(stored).get_dtype()
        return {"F32": "f32", "F16": "f16", "BF16": "bf16"}.get(dtype, dtype)

    def _open(self, path: Path) -> Any:
        try:
            self._handles[path] = safe_open(path, framework="pt")
        except FileNotFoundError:
            raise WeightsError(f"{path} is missing.", "Copy the model directory again from its source.") from None
        except (SafetensorError, OSError) as error:
            raise WeightsError(
                f"{path} is not a whole safetensors file ({error}).", "Copy the file again from its source."
            ) from error
        return self._handles[path]

    def _tensor(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise WeightsError(
                f"{path} holds {tensor.dtype} tensors; f32, f16 and bf16 checkpoints are read.",
                "Use an unquantised checkpoint.",
            )
        return tensor


def _files(directory: Path) -> list[Path]:
    index = directory / _INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_bytes())["weight_map"]
            names = sorted(set(weight_map.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(
                f"{index} is not a shard index ({error!r}).", "Copy it again from its source."
            ) from error
        return [directory / name for name in names]
    found = sorted(directory.glob("*.safetensors"))
    if not found:
        raise WeightsError(
            f"{directory} holds no .safetensors file.", "Give a Hugging Face model directory or a GGUF file."
        )
    return found


def _short(name: str) -> str:
    return name.replace(_MULTIMODAL_PREFIX, "model.", 1) if name.startswith(_MULTIMODAL_PREFIX) else name
