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
    check_banks(manifest)
    meter = Meter(manifest.total_bytes, progress)
    with Reader(threads, meter.advance) as reader:
        dense = load_dense(reader, manifest)
        banks = [(bank, load_bank(reader, manifest, bank)) for bank in manifest.banks]
        views = dense_views(manifest, dense.result())
        return Weights(views, {bank.layer: load.result().view(bank.experts, bank.stride) for bank, load in banks})


def read_dense(
    manifest: Manifest, progress: Progress | None = None, threads: int = THREADS
) -> dict[str, Packed | torch.Tensor]:
    """Only the tensors outside the experts; see `read_weights`."""
    meter = Meter(manifest.dense_bytes, progress)
    with Reader(threads, meter.advance) as reader:
        return dense_views(manifest, load_dense(reader, manifest).result())


def read_bank(manifest: Manifest, bank: Bank, threads: int = THREADS) -> torch.Tensor:
    """One layer's experts, uint8 [experts, stride]; see `read_weights`."""
    _check_bank(manifest, bank)
    with Reader(threads) as reader:
        return load_bank(reader, manifest, bank).result().view(bank.experts, bank.stride)


class Load:
    """A file being read into `memory`, which it has for itself."""

    def __init__(self, reader: Reader, manifest: Manifest, file: str, size_bytes: int, crc32: int) -> None:
        pages = _pages(size_bytes)
        self.memory = pages[:size_bytes]
        self._manifest, self._crc32 = manifest, crc32
        self.read = reader.into(manifest.path(file), size_bytes, pages.numpy().data)

    def result(self) -> torch.Tensor:
        """Waits. Raises WeightsError."""
        check_sum(self._manifest, self.read, self._crc32, self.memory.numpy().data)
        return self.memory


def load_dense(reader: Reader, manifest: Manifest) -> Load:
    """Have the tensors outside the experts come; see `dense_views`."""
    return Load(reader, manifest, manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)


def load_bank(reader: Reader, manifest: Manifest, bank: Bank) -> Load:
    """Have one layer's experts come."""
    return Load(reader, manifest, bank.file, bank.bytes, bank.crc32)


def check_banks(manifest: Manifest) -> None:
    """Raises WeightsError for a bank that the kernels could not read."""
    for bank in manifest.banks:
        _check_bank(manifest, bank)


def _check_bank(manifest: Manifest, bank: Bank) -> None:
    # Kernels trust the layout, so a manifest that contradicts itself must not reach them.
    if bank.format not in FORMATS:
        raise _contradiction(manifest, f"bank format {bank.format!r}")
    if bank.activation not in _ACTIVATIONS:
        raise _contradiction(manifest, f"activation {bank.activation!r} in {bank.file}")
    if bank.stride != expert_shape(manifest, bank).stride:
        raise _contradiction(manifest, f"expert stride {bank.stride} in {bank.file}")


def dense_views(manifest: Manifest, buffer: torch.Tensor) -> dict[str, Packed | torch.Tensor]:
    """The tensors that lie in what was read of the dense file. Raises WeightsError where the manifest cannot be right."""
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
