"""Reading FTW weights: parallel reads straight into the buffers that the kernels use, checked on the way."""

from __future__ import annotations

import math
import os
import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import WeightsError
from engine.kernels.contract import FORMATS, ExpertShape, Packed, packed_bytes
from engine.weights.manifest import MANIFEST_FILE, Bank, DenseEntry, Manifest, Progress, remedy

ALIGNMENT_BYTES = 4096
_READ_BYTES = 8 << 20
_ACTIVATIONS = ("silu", "swiglu_oai")


@dataclass(frozen=True, slots=True)
class Weights:
    """`dense`: packed matrices and plain fp32 tensors, views of one buffer. `banks`: layer → uint8 [experts, stride], each at
    a multiple of 4096 bytes. Never written after loading."""

    dense: dict[str, Packed | torch.Tensor]
    banks: dict[int, torch.Tensor]


def expert_shape(manifest: Manifest, bank: Bank) -> ExpertShape:
    """How the experts of `bank` lie in memory."""
    geometry = manifest.geometry
    return ExpertShape(geometry.hidden_size, geometry.expert_width, bank.format, bank.bias, bank.activation)


def aligned_buffer(n_bytes: int) -> torch.Tensor:
    """An uninitialised uint8 tensor of `n_bytes` at a multiple of 4096 bytes."""
    raw = torch.empty(n_bytes + ALIGNMENT_BYTES, dtype=torch.uint8)
    start = -raw.data_ptr() % ALIGNMENT_BYTES
    return raw[start : start + n_bytes]


def read_weights(manifest: Manifest, progress: Progress | None = None, threads: int = 4, check: bool = True) -> Weights:
    """Read everything. `progress(done_bytes, total_bytes)` is called from reader threads, one at a time.

    Peak memory is the size of the weights. With `check`, every file's CRC-32 is compared with the manifest's. Raises
    WeightsError naming the file that is short, unreadable or corrupt.
    """
    for bank in manifest.banks:
        _check_bank(manifest, bank)
    meter = _Meter(manifest.total_bytes, progress)
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        reader = _Reader(manifest, pool, meter, check)
        dense = reader.start(manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)
        banks = [(bank, reader.start(bank.file, bank.bytes, bank.crc32)) for bank in manifest.banks]
        reader.finish()
    return Weights(_views(manifest, dense), {bank.layer: data.view(bank.experts, bank.stride) for bank, data in banks})


def read_dense(
    manifest: Manifest, progress: Progress | None = None, threads: int = 4
) -> dict[str, Packed | torch.Tensor]:
    """Only the tensors outside the experts; see `read_weights`."""
    meter = _Meter(manifest.dense_bytes, progress)
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        reader = _Reader(manifest, pool, meter, check=True)
        data = reader.start(manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)
        reader.finish()
    return _views(manifest, data)


def read_bank(manifest: Manifest, bank: Bank, threads: int = 4) -> torch.Tensor:
    """One layer's experts, uint8 [experts, stride]; see `read_weights`."""
    _check_bank(manifest, bank)
    with ThreadPoolExecutor(threads, thread_name_prefix="read") as pool:
        reader = _Reader(manifest, pool, _Meter(bank.bytes, None), check=True)
        data = reader.start(bank.file, bank.bytes, bank.crc32)
        reader.finish()
    return data.view(bank.experts, bank.stride)


class _Meter:
    def __init__(self, total_bytes: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress, self._lock = 0, total_bytes, progress, threading.Lock()

    def advance(self, n_bytes: int) -> None:
        with self._lock:
            self._done += n_bytes
            if self._progress is not None:
                self._progress(self._done, self._total)


class _Reader:
    """Starts reads on a pool; `finish` waits for them and raises the first failure."""

    def __init__(self, manifest: Manifest, pool: ThreadPoolExecutor, meter: _Meter, check: bool) -> None:
        self._manifest, self._pool, self._meter, self._check = manifest, pool, meter, check
        self._files: list[tuple[Path, torch.Tensor, int, list[Future[None]]]] = []

    def start(self, file: str, n_bytes: int, crc32: int) -> torch.Tensor:
        path, data = self._manifest.path(file), aligned_buffer(n_bytes)
        chunks = [
            self._pool.submit(self._read, path, data, offset, min(_READ_BYTES, n_bytes - offset))
            for offset in range(0, n_bytes, _READ_BYTES)
        ]
        self._files.append((path, data, crc32, chunks))
        return data

    def finish(self) -> None:
        sums: list[tuple[Path, int, Future[int]]] = []
        try:
            for path, data, crc32, chunks in self._files:
                for chunk in chunks:
                    chunk.result()
                if self._check:
                    sums.append((path, crc32, self._pool.submit(zlib.crc32, data.numpy().data)))
            for path, crc32, found in sums:
                if found.result() != crc32:
                    raise WeightsError(
                        f"{path} is corrupt: its checksum is {found.result():08x} and should be {crc32:08x}.",
                        remedy(self._manifest.directory),
                    )
        except BaseException:
            self._pool.shutdown(wait=False, cancel_futures=True)
            raise

    def _read(self, path: Path, data: torch.Tensor, offset: int, n_bytes: int) -> None:
        view = data.numpy().data[offset : offset + n_bytes]
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while view:
                    got = os.preadv(fd, [view], offset)
                    if got == 0:
                        raise WeightsError(
                            f"{path} is truncated: it ends at byte {offset}.",
                            remedy(self._manifest.directory),
                        )
                    self._meter.advance(got)
                    view, offset = view[got:], offset + got
            finally:
                os.close(fd)
        except OSError as error:
            raise WeightsError(
                f"{path} cannot be read: {error.strerror}.", "Check the disk and permissions."
            ) from error


def _check_bank(manifest: Manifest, bank: Bank) -> None:
    # Kernels trust the layout, so a manifest that contradicts itself must not reach them.
    if bank.format not in FORMATS:
        raise _contradiction(manifest, f"bank format {bank.format!r}")
    if bank.activation not in _ACTIVATIONS:
        raise _contradiction(manifest, f"activation {bank.activation!r} in {bank.file}")
    if bank.stride != expert_shape(manifest, bank).stride:
        raise _contradiction(manifest, f"expert stride {bank.stride} in {bank.file}")


def _views(manifest: Manifest, buffer: torch.Tensor) -> dict[str, Packed | torch.Tensor]:
    for name, entry in manifest.dense.items():
        if entry.format in FORMATS and len(entry.shape) == 2:
            expected = packed_bytes(*entry.shape, entry.format)
        elif not entry.format and entry.dtype == "f32":
            expected = 4 * math.prod(entry.shape)
        else:
            raise _contradiction(manifest, f"format {entry.format!r} of {name!r}")
        if entry.bytes != expected or entry.offset % 64:
            raise _contradiction(manifest, f"place of {name!r}")
    return {name: _view(buffer, entry) for name, entry in manifest.dense.items()}


def _contradiction(manifest: Manifest, what: str) -> WeightsError:
    return WeightsError(f"{manifest.path(MANIFEST_FILE)} has an impossible {what}.", "Make the model again.")


def _view(buffer: torch.Tensor, entry: DenseEntry) -> Packed | torch.Tensor:
    data = buffer[entry.offset : entry.offset + entry.bytes]
    if entry.format:
        n, k = entry.shape
        return Packed(data, entry.format, n, k)
    return data.view(torch.float32).view(entry.shape)
