"""Writing an FTW directory: streamed, and never seen half-made under its final name."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.errors import WeightsError
from engine.kernels.contract import ExpertShape, Ops
from engine.memory.geometry import Geometry
from engine.weights.crc import Combiner
from engine.weights.direct import DirectWriter
from engine.weights.manifest import MANIFEST_FILE, Bank, DenseEntry, Manifest
from engine.weights.quantised import Matrix, packed

DENSE_FILE = "dense.bin"
DENSE_ALIGNMENT_BYTES = 64
Buffer = memoryview | bytes


class Expert(NamedTuple):
    """`gate_up` [2*width, hidden], gate rows first, `down` [hidden, width]; `bias` [2*width + hidden] as a bank has it."""

    gate_up: Matrix
    down: Matrix
    bias: torch.Tensor | None = None


@contextmanager
def staged(models_dir: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `models_dir` that becomes `models_dir/name` when the block ends well and is removed otherwise.

    An existing model of that name is replaced only at the end; anything else of that name is left alone (WeightsError).
    Leftovers of killed writers are removed. One writer per name at a time, others wait.
    """
    models_dir.mkdir(parents=True, exist_ok=True)
    final, partial, old = (models_dir / n for n in (name, f".{name}.partial", f".{name}.old"))
    with _locked(models_dir / f".{name}.lock"):
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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One holder at a time, others wait; the file is gone afterwards."""
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_at(path, lock.fileno()):
                continue  # the holder before us removed the file that we waited for
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


class FtwWriter:
    """Streams tensors into a staged folder; `finish` writes the manifest. One tensor is in memory at a time."""

    def __init__(self, directory: Path, ops: Ops) -> None:
        self._directory, self._ops = directory, ops
        self._dense_file = DirectWriter(directory / DENSE_FILE)
        self._dense: dict[str, DenseEntry] = {}
        self._dense_bytes = self._dense_crc32 = 0
        self._banks: list[Bank] = []

    def dense(self, name: str, tensor: Matrix, format: str) -> None:
        """Append a tensor: an [n, k] matrix packed in `format`, or plain fp32 when `format` is empty."""
        if format:
            data = packed(tensor, format, self._ops)
        else:
            data = tensor.float().contiguous().view(-1).view(torch.uint8)
        self.dense_pieces(name, [data.numpy().data], tuple(tensor.shape), format)

    def dense_pieces(self, name: str, pieces: Iterable[Buffer], shape: tuple[int, ...], format: str) -> None:
        """Append a tensor of `shape` whose bytes, already in `format`'s kernel layout, come in pieces."""
        assert name not in self._dense, name
        start = self._dense_bytes
        for piece in pieces:
            self._append_dense(piece)
        n_bytes = self._dense_bytes - start
        self._append_dense(bytes(-n_bytes % DENSE_ALIGNMENT_BYTES))
        self._dense[name] = DenseEntry(start, n_bytes, "u8" if format else "f32", shape, format)

    def bank(self, layer: int, experts: Iterable[Expert], format: str, activation: str = "silu") -> None:
        """Write the experts of a layer, in order, as one bank file."""
        rest = iter(experts)
        first = next(rest)
        hidden, width = first.down.shape
        shape = ExpertShape(hidden, width, format, first.bias is not None, activation)
        self.bank_pieces(layer, (expert_block(expert, shape, self._ops) for expert in chain([first], rest)), shape)

    def bank_pieces(self, layer: int, pieces: Iterable[Buffer], shape: ExpertShape) -> None:
        """Write a bank file from buffers that hold one expert each in the layout of `shape`; they may be reused."""
        file, combine, crc32, sums = bank_file(layer), Combiner(shape.stride), 0, []
        with DirectWriter(self._directory / file) as out:
            for piece in pieces:
                assert len(piece) == shape.stride, "expert size"
                out.write(piece)
                sums.append(zlib.crc32(piece))
                crc32 = combine(crc32, sums[-1], shape.stride)
        n_bytes = len(sums) * shape.stride
        bank = Bank(layer, file, n_bytes, len(sums), shape.stride, shape.format, crc32, shape.bias, shape.activation)
        self._banks.append(replace(bank, expert_crc32=tuple(sums)))

    def _append_dense(self, piece: Buffer) -> None:
        self._dense_crc32 = zlib.crc32(piece, self._dense_crc32)
        self._dense_file.write(piece)
        self._dense_bytes += len(piece)

    def text(self, file: str, text: str) -> None:
        """Write a side file such as the tokenizer."""
        write_text(self._directory / file, text)

    def finish(self, geometry: Geometry, **facts: Any) -> Manifest:
        """Write the manifest, with the sizes in `geometry` filled in. `facts` are the remaining fields of `Manifest`."""
        self._dense_file.close()
        return write_manifest(
            self._directory, geometry, self._dense, self._dense_bytes, self._dense_crc32, self._banks, **facts
        )

    def __enter__(self) -> FtwWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._dense_file.drop()


def expert_block(expert: Expert, shape: ExpertShape, ops: Ops) -> memoryview:
    """The bytes of an expert in the layout of `shape`."""
    block = torch.zeros(shape.stride, dtype=torch.uint8)
    for offset, matrix in ((0, expert.gate_up), (shape.down_offset, expert.down)):
        data = packed(matrix, shape.format, ops)
        block[offset : offset + data.numel()] = data
    if expert.bias is not None:
        bias = expert.bias.float().contiguous().view(torch.uint8)
        block[shape.bias_offset : shape.bias_offset + bias.numel()] = bias
    view: memoryview = block.numpy().data
    return view


def write_manifest(
    directory: Path,
    geometry: Geometry,
    dense: dict[str, DenseEntry],
    dense_bytes: int,
    dense_crc32: int,
    banks: Sequence[Bank],
    **facts: Any,
) -> Manifest:
    """Write the manifest of a folder whose other files are complete; see FtwWriter.finish."""
    sizes = replace(
        geometry,
        expert_bytes=max((bank.stride for bank in banks), default=0),
        bank_bytes=sum(bank.bytes for bank in banks),
        dense_bytes=dense_bytes,
    )
    manifest = Manifest(
        directory=directory,
        geometry=sizes,
        dense_file=DENSE_FILE,
        dense_bytes=dense_bytes,
        dense_crc32=dense_crc32,
        dense=dense,
        banks=tuple(banks),
        **facts,
    )
    write_text(directory / MANIFEST_FILE, json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n")
    return manifest


def write_text(path: Path, text: str) -> None:
    """Write a whole file and sync it."""
    with path.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def bank_file(layer: int) -> str:
    """Name of the file that holds a layer's experts."""
    return f"experts-{layer:03d}.bin"


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
