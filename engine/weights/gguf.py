"""GGUF files: tensors under Hugging Face names, the configuration, the tokenizer and the template."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engine.errors import Unsupported, WeightsError
from engine.weights import gguf_blocks
from engine.weights.gguf_config import config_of, layout_of, spelled
from engine.weights.gguf_names import LAYOUTS, ROPE_FACTORS, Place, places
from engine.weights.plausible import HINT, check_config
from engine.weights.quantised import Matrix, sound

_MAGIC = b"GGUF"
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class GgufSource:
    """A `TensorSource` over a GGUF file, or over all parts of a split one whose first part is given.

    `config` is the equivalent Hugging Face configuration. Experts have a name each, as in a checkpoint. Raises WeightsError when a
    file is missing, cut or not GGUF, and Unsupported for other architectures.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        readers = [_open(part) for part in _parts(path)]
        self.metadata = {key: _contents(path, key, field) for key, field in readers[0].fields.items()}
        kind = layout_of(self.metadata)
        if kind not in LAYOUTS:
            raise Unsupported(
                f"{path} holds a {kind!r} model; of GGUF files, {', '.join(LAYOUTS)} are read.",
                "Import the Hugging Face safetensors directory of the model instead.",
            )
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self.config = config_of(self.metadata, self._tensors, self._rope_factors(), path)
        check_config(self.config, path, self.spell)
        self._check_stacks()
        self._places = places(self._tensors, LAYOUTS[kind], self.config)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._places)

    def read(self, name: str) -> Matrix:
        place = self._place(name)
        tensor = self._tensors[place.tensor]
        data = tensor.data if place.expert < 0 else tensor.data[place.expert]
        try:
            matrix = gguf_blocks.decode(data, tensor.tensor_type, self._scale(place))
        except (NotImplementedError, ValueError) as error:
            raise WeightsError(f"{self._path}: {tensor.name} cannot be dequantised ({error}).") from error
        matrix = sound(matrix, self._path, tensor.name, place.expert)
        return matrix if place.fix is None else place.fix(matrix)

    def read_expert(self, name: str, expert: int) -> Matrix:
        return self.read(name)[expert]  # type: ignore[index]  # experts have their own names here; stacks are floats

    def kind(self, name: str) -> str:
        return gguf_blocks.kind(self._tensors[self._place(name).tensor].tensor_type)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor, as the model has it."""
        place = self._place(name)
        shape = _shape(self._tensors[place.tensor])[place.expert >= 0 :]
        # What the model has as two may be one here, as the rows of both.
        joined = place.tensor.endswith(("ffn_gate_up_exps.weight", "ssm_ba.weight"))
        return (shape[0] // 2, *shape[1:]) if joined else shape

    def spell(self, key: str) -> str:
        """What the file calls a key of config.json."""
        return spelled(self.metadata, key)

    def _place(self, name: str) -> Place:
        if name not in self._places:
            raise WeightsError(f"{self._path} lacks {name}.", "Get the file again from its source.")
        return self._places[name]

    def _check_stacks(self) -> None:
        """Stacks hold as many experts as the file says, and blocks are as many. Costs no more than the file has tensors."""
        experts = self.config.get("num_experts") or self.config.get("num_local_experts")
        drafts = self.metadata.get(f"{self.metadata['general.architecture']}.nextn_predict_layers", 0)
        layers = self.config["num_hidden_layers"]
        for name, tensor in self._tensors.items():
            if experts and "_exps." in name and _shape(tensor)[0] != experts:
                fact = f"{self.spell('num_experts')} is {experts}, but {name} holds {_shape(tensor)[0]}"
                raise WeightsError(f"{self._path}: {fact}.", HINT)
            block = name.removeprefix("blk.").partition(".")[0]
            if name.startswith("blk.") and block.isdecimal() and int(block) >= layers + drafts:
                fact = f"{self.spell('num_hidden_layers')} is {layers + drafts}, but there is {name}"
                raise WeightsError(f"{self._path}: {fact}.", HINT)

    def _scale(self, place: Place) -> float:
        """What multiplies an NVFP4 matrix beside its block scales."""
        beside = self._tensors.get(f"{place.tensor.removesuffix('.weight')}.scale")
        return 1.0 if beside is None else float(beside.data.reshape(-1)[max(place.expert, 0)])

    def _rope_factors(self) -> list[float] | None:
        found = self._tensors.get(ROPE_FACTORS)
        factors = [] if found is None else [float(str(factor)) for factor in found.data]
        return factors if any(factor != 1 for factor in factors) else None


class _Reader(gguf.GGUFReader):  # type: ignore[misc]  # the package is untyped
    """The package's reader on a plain view of the mapped file: slices of numpy's memmap cost several times as much, and reading
    a vocabulary makes half a million of them."""

    @property
    def data(self) -> np.ndarray[Any, Any]:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray[Any, Any]) -> None:
        self._data = mapped.view(np.ndarray)


def _parts(path: Path) -> list[Path]:
    """All files of a split model, in order. Raises WeightsError for another part than the first."""
    if not (found := _SHARD.search(path.name)):
        return [path]
    if found[1] != "00001":
        raise WeightsError(f"{path} is part {int(found[1])} of {int(found[2])}.", "Give the first part.")
    stem = path.name[: found.start()]
    return [path.with_name(f"{stem}-{part:05}-of-{found[2]}.gguf") for part in range(1, int(found[2]) + 1)]


def _open(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    if magic != _MAGIC:
        raise WeightsError(f"{path} is not a GGUF file.", "Give a .gguf file or a Hugging Face model directory.")
    try:
        reader = _Reader(path)
    except Exception as error:  # the reader lets numpy's and struct's errors through on damaged files
        size = path.stat().st_size
        raise WeightsError(
            f"{path} is damaged or cut: its {size} bytes end before what its header announces, or the header is no header.",
            "Copy the file again from its source.",
        ) from error
    _check_places(path, reader)
    return reader


def _check_places(path: Path, reader: Any) -> None:
    """Tensors begin at multiples of the alignment, one after the other, and nothing follows them."""
    end, step = int(reader.data_offset), int(reader.alignment)
    for tensor in sorted(reader.tensors, key=lambda tensor: int(tensor.data_offset)):
        start = int(tensor.data_offset)
        if (start - int(reader.data_offset)) % step:
            raise WeightsError(
                f"{path} is damaged: {tensor.name} lies at byte {start}, no multiple of {step} behind the header.", HINT
            )
        if start < end and tensor.n_bytes:
            raise WeightsError(f"{path} is damaged: {tensor.name} lies in another tensor.", HINT)
        end = start + int(tensor.n_bytes)
    size, whole = path.stat().st_size, end + -(end - int(reader.data_offset)) % step
    if reader.tensors and size > whole:
        raise WeightsError(f"{path} is damaged: {size - whole} bytes follow its last tensor.", HINT)


def _contents(path: Path, key: str, field: Any) -> Any:
    try:
        return field.contents()
    except UnicodeDecodeError:
        raise WeightsError(f"{path}: the metadata {key!r} is not UTF-8.", HINT) from None
    except (IndexError, ValueError, TypeError):
        raise WeightsError(f"{path}: the metadata {key!r} cannot be read.", HINT) from None


def _shape(tensor: Any) -> tuple[int, ...]:
    """Outputs before inputs; the file has it the other way around."""
    return tuple(int(n) for n in reversed(tensor.shape))
