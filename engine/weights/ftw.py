"""Reading FTW weights: parallel reads straight into the buffers that the kernels use, checked on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engine.device.cpu import HUGE_PAGE_BYTES, allocate_arena
from engine.errors import WeightsError
from engine.kernels.contract import FORMATS, ExpertShape, Packed, packed_bytes
from engine.weights.direct import THREADS, Reader
from engine.weights.manifest import MANIFEST_FILE, Bank, DenseEntry, Manifest, Meter, Progress, check_sum

_ACTIVATIONS = ("silu", "swiglu_oai")


@dataclass(frozen=True, slots=True)
class Weights:
    """`dense`: packed matrices and plain fp32 tensors, views of one buffer. `banks`: layer → uint8 [experts, stride], each at
    a multiple of 2 MiB. Never written after loading."""

    dense: dict[str, Packed | torch.Tensor]
    banks: dict[int, torch.Tensor]


def expert_shape(manifest: Manifest, bank: Bank) -> ExpertShape:
    """How the experts of `bank` lie in memory."""
    geometry = manifest.geometry
    return ExpertShape(geometry.hidden_size, geometry.expert_width, bank.format, bank.bias, bank.activation)


def aligned_buffer(size_bytes: int) -> torch.Tensor:
    """A zeroed uint8 tensor at a multiple of 2 MiB, on pages of that size where the system has them: the kernels read experts
    up to 1.4 times as fast as from small pages. Whole blocks of direct reads fit into its memory."""
    return _pages(size_bytes)[:size_bytes]


def _pages(size_bytes: int) -> torch.Tensor:
    return allocate_arena(-(-max(size_bytes, 1) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES)


def read_weights(manifest: Manifest, progress: Progress | None = None, threads: int = THREADS) -> Weights:
    """Read everything. `progress(done_bytes, total_bytes)` is called from reader threads, one at a time.

    Peak memory is the size of the weights; every byte is summed as it arrives. Raises WeightsError naming the file that is
    short, unreadable or corrupt.
    """
    for bank in manifest.banks:
        _check_bank(manifest, bank)
    meter = Meter(manifest.total_bytes, progress)
    with Reader(threads, meter.advance) as reader:
        dense = _Load(reader, manifest, manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)
        banks = [(bank, _load_bank(reader, manifest, bank)) for bank in manifest.banks]
        views = _views(manifest, dense.result())
        return Weights(views, {bank.layer: load.result().view(bank.experts, bank.stride) for bank, load in banks})


def read_dense(
    manifest: Manifest, progress: Progress | None = None, threads: int = THREADS
) -> dict[str, Packed | torch.Tensor]:
    """Only the tensors outside the experts; see `read_weights`."""
    meter = Meter(manifest.dense_bytes, progress)
    with Reader(threads, meter.advance) as reader:
        load = _Load(reader, manifest, manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)
        return _views(manifest, load.result())


def read_bank(manifest: Manifest, bank: Bank, threads: int = THREADS) -> torch.Tensor:
    """One layer's experts, uint8 [experts, stride]; see `read_weights`."""
    _check_bank(manifest, bank)
    with Reader(threads) as reader:
        return _load_bank(reader, manifest, bank).result().view(bank.experts, bank.stride)


class _Load:
    """A file being read into memory of its own."""

    def __init__(self, reader: Reader, manifest: Manifest, file: str, size_bytes: int, crc32: int) -> None:
        self._memory = _pages(size_bytes)
        self._manifest, self._crc32 = manifest, crc32
        self._read = reader.into(manifest.path(file), size_bytes, self._memory.numpy().data)

    def result(self) -> torch.Tensor:
        """Waits. Raises WeightsError."""
        data = self._memory[: self._read.size_bytes]
        check_sum(self._manifest, self._read, self._crc32, data.numpy().data)
        return data


def _load_bank(reader: Reader, manifest: Manifest, bank: Bank) -> _Load:
    return _Load(reader, manifest, bank.file, bank.bytes, bank.crc32)


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
