"""Writing an FTW directory in any order: sizes are known before the first tensor comes, and every piece has its place.

What is written can be continued by another process: `sums` is all that it must remember.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.errors import WeightsError
from engine.kernels.contract import ExpertShape, Ops, packed_bytes
from engine.memory.geometry import Geometry
from engine.weights.crc import Combiner
from engine.weights.manifest import Bank, DenseEntry, Manifest
from engine.weights.quantised import Matrix, packed
from engine.weights.writer import (
    DENSE_ALIGNMENT_BYTES,
    DENSE_FILE,
    Expert,
    bank_file,
    expert_block,
    write_manifest,
    write_text,
)


@dataclass(slots=True)
class Sums:
    """CRC-32 of what is written: dense tensors by name, experts by layer and number."""

    dense: dict[str, int] = field(default_factory=dict)
    experts: dict[int, dict[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"dense": self.dense, "experts": {str(layer): sums for layer, sums in self.experts.items()}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sums:
        experts = {int(layer): {int(e): s for e, s in sums.items()} for layer, sums in data["experts"].items()}
        return Sums(dict(data["dense"]), experts)

    def copy(self) -> Sums:
        return Sums(dict(self.dense), {layer: dict(sums) for layer, sums in self.experts.items()})


class ScatterWriter:
    """Puts tensors where they belong in `directory`. `dense` are (name, shape, format) in file order, the format empty for plain
    fp32; every layer in `layers` has `experts` experts of `shape`. Existing files are kept."""

    def __init__(
        self,
        directory: Path,
        ops: Ops,
        dense: Iterable[tuple[str, tuple[int, ...], str]],
        layers: Iterable[int],
        experts: int,
        shape: ExpertShape,
        sums: Sums,
    ) -> None:
        self._directory, self._ops, self._shape, self._experts = directory, ops, shape, experts
        self.sums = sums
        self._entries: dict[str, DenseEntry] = {}
        end = 0
        for name, dims, format in dense:
            size = packed_bytes(dims[0], dims[1], format) if format else 4 * math.prod(dims)
            self._entries[name] = DenseEntry(end, size, "u8" if format else "f32", dims, format)
            end += -(-size // DENSE_ALIGNMENT_BYTES) * DENSE_ALIGNMENT_BYTES
        self.dense_bytes, self._layers = end, tuple(layers)
        self.total_bytes = end + len(self._layers) * experts * shape.stride
        self._files: dict[str, int] = {}

    @property
    def files(self) -> list[str]:
        """Names of the weight files."""
        return [DENSE_FILE, *(bank_file(layer) for layer in self._layers)]

    def open(self) -> None:
        """Create the files at their full sizes; space is taken as pieces arrive. Raises WeightsError."""
        self._file(DENSE_FILE, self.dense_bytes)
        for layer in self._layers:
            self._file(bank_file(layer), self._experts * self._shape.stride)

    def put_dense(self, name: str, tensor: Matrix) -> None:
        """Raises WeightsError when the tensor has not the shape that the configuration says."""
        entry = self._entries[name]
        if tuple(tensor.shape) != entry.shape:
            raise WeightsError(
                f"The checkpoint's {name} has the shape {list(tensor.shape)}; its config.json says {list(entry.shape)}."
            )
        if entry.format:
            data = packed(tensor, entry.format, self._ops)
        else:
            data = tensor.float().contiguous().view(-1).view(torch.uint8)
        self.sums.dense[name] = self._put(DENSE_FILE, data.numpy().data, entry.offset)

    def put_expert(self, layer: int, number: int, expert: Expert) -> None:
        """Raises WeightsError as `put_dense` does."""
        wanted = ((2 * self._shape.width, self._shape.hidden), (self._shape.hidden, self._shape.width))
        found = (tuple(expert.gate_up.shape), tuple(expert.down.shape))
        if found != wanted:
            raise WeightsError(f"An expert of layer {layer} has the shapes {found}; config.json says {wanted}.")
        block = expert_block(expert, self._shape, self._ops)
        sums = self.sums.experts.setdefault(layer, {})
        sums[number] = self._put(bank_file(layer), block, number * self._shape.stride)

    def has_dense(self, name: str) -> bool:
        return name in self.sums.dense

    def has_expert(self, layer: int, number: int) -> bool:
        return number in self.sums.experts.get(layer, ())

    def sync(self) -> None:
        """All that was put is on the disk. Raises WeightsError."""
        for file, fd in self._files.items():
            try:
                os.fsync(fd)
            except OSError as error:
                raise _cannot(self._directory / file, error) from error

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    def text(self, file: str, text: str) -> None:
        """Write a side file such as the tokenizer."""
        write_text(self._directory / file, text)

    def finish(self, geometry: Geometry, **facts: Any) -> Manifest:
        """Write the manifest once everything is there; see FtwWriter.finish."""
        self.sync()
        total, end = 0, 0
        for name, entry in self._entries.items():
            padding = bytes(-entry.bytes % DENSE_ALIGNMENT_BYTES)
            total = Combiner(entry.bytes)(total, self.sums.dense[name], entry.bytes)
            total = zlib.crc32(padding, total)
            end = entry.offset + entry.bytes + len(padding)
        assert end == self.dense_bytes
        return write_manifest(
            self._directory,
            geometry,
            self._entries,
            self.dense_bytes,
            total,
            [self._bank(layer) for layer in self._layers],
            **facts,
        )

    def _bank(self, layer: int) -> Bank:
        shape, combine, crc32 = self._shape, Combiner(self._shape.stride), 0
        sums = tuple(self.sums.experts[layer][expert] for expert in range(self._experts))
        for sum_ in sums:
            crc32 = combine(crc32, sum_, shape.stride)
        n_bytes = self._experts * shape.stride
        head = (layer, bank_file(layer), n_bytes, self._experts, shape.stride, shape.format)
        return Bank(*head, crc32, shape.bias, shape.activation, sums)

    def _put(self, file: str, data: memoryview, offset: int) -> int:
        rest, at = data, offset
        try:
            while rest:
                n = os.pwrite(self._files[file], rest, at)
                rest, at = rest[n:], at + n
        except OSError as error:
            raise _cannot(self._directory / file, error) from error
        return zlib.crc32(data)

    def _file(self, name: str, size_bytes: int) -> None:
        path = self._directory / name
        try:
            self._files[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._files[name], size_bytes)
        except OSError as error:
            raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> WeightsError:
    return WeightsError(
        f"{path} cannot be written: {error.strerror}.", "Free some disk space, or choose another --models-dir."
    )
