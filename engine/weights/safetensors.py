"""Hugging Face checkpoints: one `model.safetensors`, or shards listed in `model.safetensors.index.json`; as floats, or quantised
in a form that `engine.weights.published` knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import WeightsError
from engine.weights import published
from engine.weights.config import is_plain, read_config
from engine.weights.quantised import Matrix, sound

_INDEX = "model.safetensors.index.json"
_MULTIMODAL_PREFIX = "model.language_model."
_FOREIGN = (".qweight", ".qzeros", ".weight_packed", ".weight.absmax", ".weight.quant_map")  # GPTQ, AWQ and others
_READ = "f32, f16 and bf16 checkpoints are read, and MXFP4, NVFP4 and FP8 as gpt-oss, modelopt, compressed-tensors and DeepSeek publish them."


Open = Callable[[Path], Any]


class SafetensorsSource:
    """A `TensorSource` over a directory. Files are mapped, tensors are read when asked for.

    Names of multimodal checkpoints lose their `model.language_model.` prefix; a quantised matrix has one name for all its parts.
    Raises WeightsError when a file is missing, cut or not safetensors, or quantised in a way that is not read.
    """

    def __init__(self, directory: Path, open: Open | None = None) -> None:
        read_file = open or open_file
        self._directory = directory
        self._handles: dict[Path, Any] = {}
        self._where: dict[str, tuple[Path, str]] = {}
        for path in _files(directory):
            self._handles[path] = read_file(path)
            for name in self._handles[path].keys():  # noqa: SIM118 (a safetensors handle is not a mapping)
                self._where[_short(name)] = (path, name)
        config = directory / "config.json"
        self._block = published.block_size(read_config(config)) if config.is_file() else published.FP8_BLOCK
        dtypes = {name: self._dtype(name) for name in self._where}
        self._quantised, parts = published.find(dtypes, self._block)
        self._names = frozenset(self._where.keys() - parts | self._quantised.keys())
        if foreign := next((name for name in sorted(self._names) if name.endswith(_FOREIGN)), None):
            raise WeightsError(f"{directory} is quantised in a way that is not read here ({foreign}).", _READ)

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def read(self, name: str) -> Matrix:
        if name not in self._names:
            raise self._missing(name)
        if stored := self._quantised.get(name):
            return sound(published.read(stored, self._stored, self._block), self._where[stored.parts[0]][0], name)
        return self._checked(name, self._stored(name))

    def read_expert(self, name: str, expert: int) -> Matrix:
        def part(name: str) -> torch.Tensor:
            if name not in self._where:
                raise self._missing(name)
            path, stored = self._where[name]
            tensor: torch.Tensor = self._handles[path].get_slice(stored)[expert : expert + 1][0]
            return tensor

        if stored := self._quantised.get(name):
            return sound(published.read(stored, part, self._block), self._where[stored.parts[0]][0], name, expert)
        return self._checked(name, part(name))

    def kind(self, name: str) -> str:
        if stored := self._quantised.get(name):
            return stored.format
        dtype = self._dtype(name)
        return {"F32": "f32", "F16": "f16", "BF16": "bf16"}.get(dtype, dtype)

    def _stored(self, name: str) -> torch.Tensor:
        path, stored = self._where[name]
        tensor: torch.Tensor = self._handles[path].get_tensor(stored)
        return tensor

    def _dtype(self, name: str) -> str:
        if name not in self._where:
            raise self._missing(name)
        path, stored = self._where[name]
        return str(self._handles[path].get_slice(stored).get_dtype())

    def stored(self, name: str) -> list[tuple[Path, str]]:
        """The files and the tensors in them that `name` is read from."""
        parts = self._quantised[name].parts if name in self._quantised else (name,)
        return [self._where[part] for part in parts]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor, or of the matrices that quantised parts stand for."""
        found = self._quantised.get(name)
        part = found.parts[0] if found else name
        if part not in self._where:
            raise self._missing(name)
        path, stored = self._where[part]
        held = tuple(int(n) for n in self._handles[path].get_slice(stored).get_shape())
        if found is None:
            return held
        if len(held) < (4 if found.format == "mxfp4" and name.endswith("_proj") else 2):
            raise WeightsError(
                f"{path} holds {part} in {len(held)} dimensions, which is no {found.format} matrix.", _READ
            )
        return published.shape(found, held)

    def _missing(self, name: str) -> WeightsError:
        return WeightsError(f"{self._directory} lacks {name}.", "Copy the model directory again from its source.")

    def _checked(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise WeightsError(f"{self._where[name][0]} holds {name} as {tensor.dtype} without scales.", _READ)
        return tensor


def open_file(path: Path) -> Any:
    """Map a file. Raises WeightsError when it is missing, cut or not safetensors."""
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise WeightsError(f"{path} is missing.", "Copy the model directory again from its source.") from None
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path} is not a whole safetensors file ({error}).", "Copy the file again from its source."
        ) from error


def _files(directory: Path) -> list[Path]:
    index = directory / _INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_bytes())["weight_map"]
            names = sorted(set(weight_map.values()), key=str)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(
                f"{index} is not a shard index ({error!r}).", "Copy it again from its source."
            ) from error
        for name in names:
            if not isinstance(name, str) or not is_plain(name):
                raise WeightsError(
                    f"{index} names {name!r}, which is not a plain file name.", "Copy it again from its source."
                )
        return [directory / name for name in names]
    found = sorted(directory.glob("*.safetensors"))
    if not found:
        raise WeightsError(
            f"{directory} holds no .safetensors file.", "Give a Hugging Face model directory or a GGUF file."
        )
    return found


def _short(name: str) -> str:
    return name.replace(_MULTIMODAL_PREFIX, "model.", 1) if name.startswith(_MULTIMODAL_PREFIX) else name
