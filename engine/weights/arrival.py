"""Tensors of remote safetensors files as they arrive: in the place of `safetensors.safe_open` for those that are in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Full, Queue
from typing import Any

import torch

from engine.errors import Unsupported
from engine.weights.hub import TensorPlace

Arrived = dict[str, torch.Tensor]
_QUEUED = 64  # chunks between the network and the conversion
_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I32": torch.int32,
    "I64": torch.int64,
}


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file whose tensors come and go in `arrived`, which all files of a checkpoint share. `data_start` bytes come before the
    tensors."""

    places: dict[str, TensorPlace]
    data_start: int
    arrived: Arrived

    def keys(self) -> list[str]:
        return list(self.places)

    def get_tensor(self, name: str) -> torch.Tensor:
        """Raises KeyError for a tensor that is not there yet, or not any more."""
        return self.arrived[name]

    def get_slice(self, name: str) -> RemoteSlice:
        return RemoteSlice(self, name)


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    file: RemoteFile
    name: str

    def get_dtype(self) -> str:
        return self.file.places[self.name].dtype

    def get_shape(self) -> list[int]:
        return list(self.file.places[self.name].shape)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.file.get_tensor(self.name)[index]


def cut(
    chunks: Iterator[bytes], file: RemoteFile, wanted: Callable[[str], bool], advance: Callable[[int], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every wanted tensor of `file`, as the file's bytes go by. All chunks are consumed."""
    order = sorted((place.start, name) for name, place in file.places.items() if place.end > place.start)
    waiting = iter(order)
    name, room, filled = _next(waiting, file, wanted)
    position = -file.data_start  # of the next byte, in the file's data
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest and name:
            place = file.places[name]
            if position < place.start:
                step = min(len(rest), place.start - position)
            else:
                step = min(len(rest), place.end - position)
                room[filled : filled + step] = torch.frombuffer(bytearray(rest[:step]), dtype=torch.uint8)
                filled += step
            rest, position = rest[step:], position + step
            if position == place.end:
                yield name, room.view(_dtype(name, place)).view(place.shape)
                name, room, filled = _next(waiting, file, wanted)
        position += len(rest)
        advance(len(chunk))


def _next(
    order: Iterator[tuple[int, str]], file: RemoteFile, wanted: Callable[[str], bool]
) -> tuple[str, torch.Tensor, int]:
    for _, name in order:
        if wanted(name):
            place = file.places[name]
            return name, torch.empty(place.end - place.start, dtype=torch.uint8), 0
    return "", torch.empty(0, dtype=torch.uint8), 0


def _dtype(name: str, place: TensorPlace) -> torch.dtype:
    if place.dtype not in _DTYPES:
        raise Unsupported(f"{name} is stored as {place.dtype}, which is not read.")
    return _DTYPES[place.dtype]


@contextmanager
def queued(chunks: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """The same chunks, fetched by a thread while the earlier ones are used. What `chunks` raises is raised by the iteration."""
    queue: Queue[bytes | BaseException | None] = Queue(_QUEUED)
    stop = threading.Event()

    def put(item: bytes | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                queue.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def fetch() -> None:
        try:
            for chunk in chunks:
                if not put(chunk):
                    return
            put(None)
        except BaseException as error:
            put(error)

    def taken() -> Iterator[bytes]:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=fetch, name="fetch", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join(timeout=5)
