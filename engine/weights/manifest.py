"""The manifest of an FTW directory (`ftw.json`): what the files are, and whether they are whole. Torch-free.

    ftw.json              this manifest, written last
    config.json           the model's own configuration
    tokenizer.json        `tokenizers` format
    chat_template.jinja
    dense.bin             every tensor outside the experts, each at a multiple of 64 bytes
    experts-000.bin …     one bank per MoE layer: experts at multiples of `stride` (4096-aligned)

Matrices are stored in the layout the kernels multiply with (`engine.kernels.contract.Packed`), so loading is reading.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from engine.errors import WeightsError
from engine.memory.geometry import Geometry
from engine.weights.config import is_plain
from engine.weights.direct import CutShort, FileRead, Reader

FORMAT = "ftw/1"
MANIFEST_FILE = "ftw.json"
Progress = Callable[[int, int], None]  # (done, total), in bytes unless said otherwise


@dataclass(frozen=True, slots=True)
class DenseEntry:
    """Where one tensor lies in the dense file. `format` is set for a packed matrix of `shape` (n, k), and empty for plain
    fp32 values of any shape."""

    offset: int
    bytes: int
    dtype: str  # f32, or u8 for packed matrices
    shape: tuple[int, ...]
    format: str = ""


@dataclass(frozen=True, slots=True)
class Bank:
    """The experts of one layer: one file of `experts * stride` bytes. `layer` counts all layers of the model."""

    layer: int
    file: str
    bytes: int
    experts: int
    stride: int
    format: str
    crc32: int
    bias: bool = False  # fp32 biases follow the matrices of each expert
    activation: str = "silu"  # see engine.kernels.contract.ExpertShape
    expert_crc32: tuple[int, ...] = ()  # of each expert; () in models of older writers


@dataclass(frozen=True, slots=True)
class Manifest:
    directory: Path
    name: str
    arch: str
    created_by: str
    kv_dtype: str
    geometry: Geometry
    dense_file: str
    dense_bytes: int
    dense_crc32: int
    dense: dict[str, DenseEntry]
    banks: tuple[Bank, ...]
    eos_token_ids: tuple[int, ...]
    dialect: str
    thinking: bool
    quality: str
    window_tokens: int
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    tokenizer: str = "tokenizer.json"
    chat_template: str = "chat_template.jinja"
    config: str = "config.json"
    template_family: str = ""  # which template/1 declaration describes chat_template; "": by the dialect and `thinking`
    source: str = ""  # where the weights came from, for people

    @property
    def total_bytes(self) -> int:
        """Bytes of all weights on disk, which are the bytes in memory."""
        return self.dense_bytes + sum(bank.bytes for bank in self.banks)

    def path(self, file: str) -> Path:
        return self.directory / file

    def to_json(self) -> dict[str, Any]:
        data = {key: value for key, value in asdict(self).items() if key not in _OWN_JSON}
        tensors = {name: _without_empty_format(asdict(entry)) for name, entry in self.dense.items()}
        return {
            "format": FORMAT,
            **data,
            "geometry": self.geometry.to_json(),
            "dense": {
                "file": self.dense_file,
                "bytes": self.dense_bytes,
                "crc32": self.dense_crc32,
                "tensors": tensors,
            },
            "banks": [asdict(bank) for bank in self.banks],
        }


_OWN_JSON = ("directory", "geometry", "dense_file", "dense_bytes", "dense_crc32", "dense", "banks")


def load_manifest(directory: Path | str) -> Manifest:
    """Read `directory`'s manifest and check that every file it names is there with the right size.

    Raises WeightsError naming the file and what is wrong with it. Contents are checked by `verify`.
    """
    directory = Path(directory)
    path = directory / MANIFEST_FILE
    fix = remedy(directory)
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise WeightsError(
            f"{path} is missing, so {directory} is not a model directory.", f"Move {directory} away. {fix}"
        ) from None
    except ValueError as error:
        raise WeightsError(f"{path} is not JSON ({error}).", fix) from None
    version = data.get("format") if isinstance(data, dict) else None
    if version != FORMAT:
        raise WeightsError(f"{path} has format {version!r}; this build reads {FORMAT!r}.", fix)
    try:
        manifest = _parse(directory, data)
        _check_files(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(f"{path} lacks a field or has a wrong one ({error!r}).", fix) from None
    return manifest


def verify(directory: Path | str, progress: Progress | None = None) -> Manifest:
    """`load_manifest`, then compare the CRC-32 of the dense file and of every bank. Raises WeightsError at the first
    difference, naming the file, both sums, and the expert where that is known."""
    manifest = load_manifest(directory)
    sums = [(manifest.dense_file, manifest.dense_bytes, manifest.dense_crc32)]
    sums += [(bank.file, bank.bytes, bank.crc32) for bank in manifest.banks]
    with Reader(advance=Meter(manifest.total_bytes, progress).advance) as reader:
        reads = [(reader.through(manifest.path(file), size), crc32) for file, size, crc32 in sums]
        for read, crc32 in reads:
            check_sum(manifest, read, crc32)
    return manifest


class Meter:
    """Counts bytes from any thread and reports the sum, one call at a time."""

    def __init__(self, total_bytes: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress, self._lock = 0, total_bytes, progress, threading.Lock()

    def advance(self, n_bytes: int) -> None:
        with self._lock:
            self._done += n_bytes
            if self._progress is not None:
                self._progress(self._done, self._total)


def check_sum(manifest: Manifest, read: FileRead, expected: int, data: memoryview | None = None) -> None:
    """Waits for `read`, whose bytes went to `data` or nowhere. Raises WeightsError naming the file that is short, unreadable or
    corrupt, and of a bank the first expert that is."""
    with reading(manifest, read.path):
        found = read.crc32()
    if found != expected:
        where = _where(manifest, read.path, data)
        raise WeightsError(
            f"{read.path} is corrupt{where}: its checksum is {found:08x} and should be {expected:08x}.",
            remedy(manifest.directory),
        )


@contextmanager
def reading(manifest: Manifest, path: Path) -> Iterator[None]:
    """What a read of `path` raises becomes a WeightsError that names it."""
    try:
        yield
    except CutShort as cut:
        raise WeightsError(f"{path} is truncated: it ends at byte {cut.offset}.", remedy(manifest.directory)) from None
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}.", "Check the disk and permissions.") from error


def _where(manifest: Manifest, path: Path, data: memoryview | None) -> str:
    bank = next((bank for bank in manifest.banks if bank.file == path.name), None)
    if bank is None or not bank.expert_crc32:
        return ""
    with path.open("rb") as file:
        for expert, expected in enumerate(bank.expert_crc32):
            start = expert * bank.stride
            block = file.read(bank.stride) if data is None else data[start : start + bank.stride]
            if zlib.crc32(block) != expected:
                return f" in expert {expert} of layer {bank.layer}"
    return ""


def _parse(directory: Path, data: dict[str, Any]) -> Manifest:
    dense = data["dense"]
    rest = {key: value for key, value in data.items() if key not in ("format", "dense", "banks", "geometry")}
    tensors = {n: DenseEntry(**{**entry, "shape": tuple(entry["shape"])}) for n, entry in dense["tensors"].items()}
    manifest = Manifest(
        **{**rest, "eos_token_ids": tuple(rest["eos_token_ids"])},
        directory=directory,
        geometry=Geometry.from_json(data["geometry"]),
        dense_file=dense["file"],
        dense_bytes=dense["bytes"],
        dense_crc32=dense["crc32"],
        dense=tensors,
        banks=tuple(Bank(**{**bank, "expert_crc32": tuple(bank.get("expert_crc32", ()))}) for bank in data["banks"]),
    )
    records: list[_Record] = [manifest, manifest.geometry, *tensors.values(), *manifest.banks]
    for record in records:
        _check_types(record)
    counts: list[tuple[Any, ...]] = [manifest.eos_token_ids, manifest.geometry.state_layer_bytes]
    counts += [entry.shape for entry in tensors.values()]
    counts += [bank.expert_crc32 for bank in manifest.banks]
    if not all(type(number) is int and number >= 0 for row in counts for number in row):
        raise TypeError("a list holds something other than counts")
    if not isinstance(manifest.sampling_defaults, dict):
        raise TypeError("sampling_defaults is not an object")
    return manifest


_Record = Manifest | Geometry | DenseEntry | Bank


def _check_types(record: _Record) -> None:
    """Raises TypeError when a number, name or switch of a record is not one; all numbers here count something."""
    for known in fields(record):
        value: Any = getattr(record, known.name)
        kind = _SCALARS.get(str(known.type))
        if kind is not None and (type(value) is not kind or (isinstance(value, int) and value < 0)):
            raise TypeError(f"{known.name} is {value!r}")


_SYNTHETIC = re.compile(rb'"quality":\s*"synthetic"')
_LIKE = re.compile(rb'"source":\s*"random values at the shapes of ([A-Za-z0-9._-]+)"')
_SCALARS: dict[str, type] = {"int": int, "str": str, "bool": bool}


def _check_files(manifest: Manifest) -> None:
    path, fix = manifest.path(MANIFEST_FILE), remedy(manifest.directory)
    expected: dict[str, int | None] = dict.fromkeys((manifest.tokenizer, manifest.chat_template, manifest.config))
    expected[manifest.dense_file] = manifest.dense_bytes
    expected.update({bank.file: bank.bytes for bank in manifest.banks})
    for file, size in expected.items():
        if not is_plain(file):
            raise WeightsError(f"{path} names {file!r}, which is not a plain file name.", fix)
        _check_size(manifest.path(file), size, fix)
    for name, entry in manifest.dense.items():
        if entry.offset + entry.bytes > manifest.dense_bytes:
            raise WeightsError(f"{path} places {name!r} outside {manifest.dense_file}.", fix)
    geometry = manifest.geometry
    for bank in manifest.banks:
        if (bank.experts, bank.stride) != (geometry.experts, geometry.expert_bytes) or (
            bank.experts * bank.stride != bank.bytes or len(bank.expert_crc32) not in (0, bank.experts)
        ):
            raise WeightsError(f"{path} contradicts itself about {bank.file}.", fix)
    if (geometry.dense_bytes, geometry.dense_bytes + geometry.bank_bytes) != (
        manifest.dense_bytes,
        manifest.total_bytes,
    ) or len({bank.layer for bank in manifest.banks}) != geometry.moe_layers:
        raise WeightsError(f"{path} contradicts itself about the size of the model.", fix)


def _check_size(path: Path, size: int | None, fix: str) -> None:
    if not path.is_file():
        raise WeightsError(f"{path} is missing.", fix)
    actual = path.stat().st_size
    if size is not None and actual != size:
        fact = "truncated" if actual < size else "too long"
        raise WeightsError(f"{path} is {fact}: {actual} bytes, should be {size}.", fix)


def _without_empty_format(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value != ""}


def remedy(directory: Path) -> str:
    """What to do about a damaged model directory. Its name decides, whatever the manifest in it says, except that random weights
    have no source."""
    try:
        said = (directory / MANIFEST_FILE).read_bytes()
    except OSError:
        said = b""
    if _SYNTHETIC.search(said):  # also where the rest of it is cut
        like = _LIKE.search(said)
        shapes = like[1].decode() if like else "MODEL"
        return f"Make it again: ft models synth --like {shapes} --name {directory.name} --force"
    made = {"smollm2-moe": "ft models pull smollm2-moe --force", "tiny-hybrid": "ft models tiny-hybrid --force"}
    return "Make it again: " + made.get(directory.name, f"ft models import SOURCE --name {directory.name} --force")
