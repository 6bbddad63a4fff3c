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
_MAX_HEADER = 1 << 20
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


def pack_segment(identity: str, segment: Segment, owner: str = "") -> list[bytes]:
    """The parts of a file, to be written in order. `owner` is the session that has it written."""
    pages = [len(page) for page in segment.pages]
    header = {"identity": identity, "start": segment.start, "pages": pages, "owner": owner}
    return _pack(header, segment.tokens, segment.pages)


def pack_state(identity: str, name: StateName, state: bytes, owner: str = "") -> list[bytes]:
    """The parts of a file, to be written in order."""
    header = {"identity": identity, "key": name.key, "start": name.position, "owner": owner}
    return _pack(header, token_array([]), [state])


def read_owner(path: Path) -> str:
    """The session that had the file written, from its header alone; "" where nobody says."""
    try:
        with path.open("rb") as file:
            magic, version, size = _HEAD.unpack(file.read(_HEAD.size))
            if (magic, version) != (_MAGIC, VERSION) or size > _MAX_HEADER:
                return ""
            return str(json.loads(file.read(size)).get("owner") or "")
    except (OSError, ValueError, AttributeError, struct.error):
        return ""


def read_segment(path: Path, identity: str) -> Segment:
    """Raises Damaged, or OSError when it cannot be read."""
    header, tokens, payload = _unpack(path.read_bytes(), identity)
    pages, start = [], 0
    for size in header["pages"]:
        pages.append(bytes(payload[start : start + size]))
        start += size
    return Segment(header["start"], tokens, tuple(pages))


def read_state(path: Path, identity: str, name: StateName) -> bytes:
    """Raises Damaged, or OSError when it cannot be read."""
    header, _, payload = _unpack(path.read_bytes(), identity)
    if (header["key"], header["start"]) != (name.key, name.position):
        raise Damaged("it holds the state of other tokens")
    return bytes(payload)


def read_tokens(path: Path, name: KvName) -> array[int]:
    """The tokens of a segment without the rest of the file; unchecked, so good for a guess only. Raises Damaged, or OSError
    when it cannot be read."""
    wanted = 4 * (name.end - name.start)
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            magic, version, size = _HEAD.unpack(head)
            if (magic, version) == (_MAGIC, VERSION):
                file.seek(size, 1)
                data = file.read(wanted)
                if len(data) == wanted:
                    return array("I", data)
    raise Damaged("it is no whole file")


def _pack(header: dict[str, Any], tokens: array[int], payload: Sequence[bytes]) -> list[bytes]:
    text = json.dumps({**header, "tokens": len(tokens)}).encode()
    parts = [_HEAD.pack(_MAGIC, VERSION, len(text)), text, tokens.tobytes(), *payload]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [*parts, _CRC.pack(crc)]


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
