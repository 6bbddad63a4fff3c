"""The two kinds of checkpoint files: KV of a run of tokens, and a recurrent state.

A file is: magic, version and header length; a JSON header; tokens (32 bits each); payload; CRC-32 of all of it. Its name
says what it is, so that an index is built from a folder listing alone: `<key>-<parent>-<start>-<end>.kv` and
`<key>-<position>.state`, where a key is a hash of the model's identity and all tokens up to a position.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from engine.cache.node import token_array

VERSION = 1
_MAGIC = b"ftck"
_HEAD = struct.Struct("<4sII")
_CRC = struct.Struct("<I")
_KV = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-(\d+)-(\d+)\.kv")
_STATE = re.compile(r"([0-9a-f]{32})-(\d+)\.state")


class Damaged(Exception):
    """A file that is not what its name says. The text says why."""


@dataclass(frozen=True, slots=True)
class Segment:
    """KV of tokens [start, start + len(tokens)). `pages[i]` is page start // page_tokens + i, filled up to where the
    segment ends in it; the first may hold positions before `start` too."""

    start: int
    tokens: array[int]
    pages: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KvName:
    key: str
    parent: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.key}-{self.parent}-{self.start}-{self.end}.kv"


@dataclass(frozen=True, slots=True)
class StateName:
    key: str
    position: int

    def __str__(self) -> str:
        return f"{self.key}-{self.position}.state"


Name = KvName | StateName


def parse_name(name: str) -> Name | None:
    """None for a file that is not ours."""
    if found := _KV.fullmatch(name):
        return KvName(found[1], found[2], int(found[3]), int(found[4]))
    if found := _STATE.fullmatch(name):
        return StateName(found[1], int(found[2]))
    return None


def keys(identity: str, tokens: array[int], positions: Iterable[int]) -> dict[int, str]:
    """The key of each position up to len(tokens), ascending positions given."""
    made, data, done = blake2b(identity.encode(), digest_size=16), memoryview(tokens.tobytes()), 0
    found = {}
    for position in positions:
        if position > len(tokens):
            break
        made.update(data[4 * done : 4 * position])
        done = position
        found[position] = made.hexdigest()
    return found


def pack_segment(identity: str, segment: Segment) -> list[bytes]:
    """The parts of a file, to be written in order."""
    header = {"identity": identity, "start": segment.start, "pages": [len(page) for page in segment.pages]}
    return _pack(header, segment.tokens, segment.pages)


def pack_state(identity: str, position: int, state: bytes) -> list[bytes]:
    """The parts of a file, to be written in order."""
    return _pack({"identity": identity, "start": position, "pages": [len(state)]}, token_array([]), [state])


def read_segment(path: Path, identity: str) -> Segment:
    """Raises Damaged, or OSError when it cannot be read."""
    header, tokens, payload = _unpack(path.read_bytes(), identity)
    pages, start = [], 0
    for size in header["pages"]:
        pages.append(bytes(payload[start : start + size]))
        start += size
    return Segment(header["start"], tokens, tuple(pages))


def read_state(path: Path, identity: str) -> bytes:
    """Raises Damaged, or OSError when it cannot be read."""
    return bytes(_unpack(path.read_bytes(), identity)[2])


def read_tokens(path: Path) -> array[int]:
    """The tokens of a segment without the rest of the file; unchecked, so good for a guess only. Raises Damaged."""
    with path.open("rb") as file:
        _, size = _header(file.read(_HEAD.size), file)
        data = file.read(4 * size)
    if len(data) != 4 * size:
        raise Damaged("it is truncated")
    return array("I", data)


def _pack(header: dict[str, Any], tokens: array[int], payload: Sequence[bytes]) -> list[bytes]:
    text = json.dumps({**header, "tokens": len(tokens)}).encode()
    parts = [_HEAD.pack(_MAGIC, VERSION, len(text)), text, tokens.tobytes(), *payload]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [*parts, _CRC.pack(crc)]


def _header(head: bytes, file: Any) -> tuple[dict[str, Any], int]:
    if len(head) < _HEAD.size:
        raise Damaged("it is truncated")
    magic, version, size = _HEAD.unpack(head)
    if magic != _MAGIC or version != VERSION:
        raise Damaged("it has another format")
    try:
        header: dict[str, Any] = json.loads(file.read(min(size, 1 << 24)))
        return header, int(header["tokens"])
    except (ValueError, KeyError, TypeError) as failure:
        raise Damaged("its header is no header") from failure


def _unpack(data: bytes, identity: str) -> tuple[dict[str, Any], array[int], memoryview]:
    if len(data) < _HEAD.size + _CRC.size:
        raise Damaged("it is truncated")
    body = memoryview(data)[: -_CRC.size]
    magic, version, size = _HEAD.unpack(body[: _HEAD.size])
    if magic != _MAGIC or version != VERSION:
        raise Damaged("it has another format")
    if zlib.crc32(body) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise Damaged("its checksum is wrong")
    header = json.loads(bytes(body[_HEAD.size : _HEAD.size + size]))
    if header["identity"] != identity:
        raise Damaged("it is of another model")
    start = _HEAD.size + size
    end = start + 4 * header["tokens"]
    return header, array("I", bytes(body[start:end])), body[end:]
