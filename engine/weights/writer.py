"""Writing an FTW directory: streamed, and never seen half-made under its final name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch

from engine.errors import WeightsError
from engine.kernels.contract import Ops, expert_layout
from engine.memory.geometry import Geometry
from engine.weights.manifest import MANIFEST_FILE, Bank, DenseEntry, Manifest

DENSE_FILE = "dense.bin"
DENSE_ALIGNMENT_BYTES = 64
Expert = tuple[torch.Tensor, torch.Tensor]  # gate_up [2*width, hidden], down [hidden, width]


@contextmanager
def staged(models_dir: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `models_dir` that becomes `models_dir/name` when the block ends well and is removed otherwise.

    An existing model of that name is replaced only at the end; anything else of that name is left alone (WeightsError).
    Leftovers of killed writers are removed. One writer per name at a time, others wait.
    """
    models_dir.mkdir(parents=True, exist_ok=True)
    final, partial, old = (models_dir / n for n in (name, f".{name}.partial", f".{name}.old"))
    with (models_dir / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if old.exists() and not final.exists():  # killed between the two renames below
            old.rename(final)
        if final.exists() and not (final / MANIFEST_FILE).is_file():
            raise WeightsError(f"{final} exists and is not a model directory.", "Move it away, or choose another name.")
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            _sync_directory(partial)
            if final.exists():
                final.rename(old)
            partial.rename(final)
            _sync_directory(models_dir)
        finally:
            for leftover in (partial, old):
                shutil.rmtree(leftover, ignore_errors=True)


class FtwWriter:
    """Streams tensors into a staged folder; `finish` writes the manifest. One tensor is in memory at a time."""

    def __init__(self, directory: Path, ops: Ops) -> None:
        self._directory, self._ops = directory, ops
        self._dense_file: IO[bytes] = (directory / DENSE_FILE).open("wb")
        self._dense: dict[str, DenseEntry] = {}
        self._dense_bytes = self._dense_crc32 = 0
        self._banks: list[Bank] = []

    def dense(self, name: str, tensor: torch.Tensor, format: str) -> None:
        """Append a tensor: an [n, k] matrix packed in `format`, or plain fp32 when `format` is empty."""
        assert name not in self._dense, name
        if format:
            data, dtype = self._ops.pack(tensor.float().contiguous(), format), "u8"
        else:
            data, dtype = tensor.float().contiguous().view(-1).view(torch.uint8), "f32"
        self._dense[name] = DenseEntry(self._dense_bytes, data.numel(), dtype, tuple(tensor.shape), format)
        padding = bytes(-data.numel() % DENSE_ALIGNMENT_BYTES)
        for piece in (data.numpy().data, padding):
            self._dense_crc32 = zlib.crc32(piece, self._dense_crc32)
            self._dense_bytes += self._write(self._dense_file, piece)

    def bank(self, layer: int, experts: Iterable[Expert], format: str) -> None:
        """Write the experts of a layer, in order, as one bank file."""
        file, count, stride, crc32 = f"experts-{layer:03d}.bin", 0, 0, 0
        with (self._directory / file).open("wb") as out:
            for gate_up, down in experts:
                hidden, width = down.shape
                _, down_offset, stride = expert_layout(hidden, width, format)
                block = torch.zeros(stride, dtype=torch.uint8)
                for offset, matrix in ((0, gate_up), (down_offset, down)):
                    data = self._ops.pack(matrix.float().contiguous(), format)
                    block[offset : offset + data.numel()] = data
                crc32 = zlib.crc32(block.numpy().data, crc32)
                self._write(out, block.numpy().data)
                count += 1
            _sync_file(out)
        self._banks.append(Bank(layer, file, count * stride, count, stride, format, crc32))

    def text(self, file: str, text: str) -> None:
        """Write a side file such as the tokenizer."""
        with (self._directory / file).open("w", encoding="utf-8") as out:
            out.write(text)
            _sync_file(out)

    def finish(self, geometry: Geometry, **facts: Any) -> Manifest:
        """Write the manifest, with the sizes in `geometry` filled in. `facts` are the remaining fields of `Manifest`."""
        _sync_file(self._dense_file)
        self._dense_file.close()
        sizes = replace(
            geometry,
            expert_bytes=max((bank.stride for bank in self._banks), default=0),
            bank_bytes=sum(bank.bytes for bank in self._banks),
            dense_bytes=self._dense_bytes,
        )
        manifest = Manifest(
            directory=self._directory,
            geometry=sizes,
            dense_file=DENSE_FILE,
            dense_bytes=self._dense_bytes,
            dense_crc32=self._dense_crc32,
            dense=self._dense,
            banks=tuple(self._banks),
            **facts,
        )
        self.text(MANIFEST_FILE, json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n")
        return manifest

    def __enter__(self) -> FtwWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._dense_file.close()

    def _write(self, out: IO[bytes], data: memoryview | bytes) -> int:
        n_bytes = len(data)
        try:
            out.write(data)
        except OSError as error:
            raise WeightsError(
                f"{self._directory} cannot be written: {error.strerror}.",
                "Free some disk space, or choose another --models-dir.",
            ) from error
        return n_bytes


def _sync_file(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
