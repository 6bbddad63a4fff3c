"""Changes of single keys, as data, and what a document holds after them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[str, ...]


class CannotEdit(Exception):
    """The text does not parse, or a change of it cannot be proven; `offset` counts characters, -1 where none is known."""

    def __init__(self, reason: str, offset: int = -1, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Edit:
    """Sets one key, with the tables above it that are missing, or takes it out."""

    key: Key
    value: Any = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What an edit did at `key`: `old` counts only when `had`, `written` only unless `removed`."""

    key: Key
    had: bool
    old: Any
    written: Any
    removed: bool = False


def find(data: Any, key: Sequence[str]) -> tuple[bool, Any]:
    """Whether the key is there, and its value."""
    for name in key:
        if not isinstance(data, Mapping) or name not in data:
            return False, None
        data = data[name]
    return True, data


def applied(data: Any, edit: Edit) -> Any:
    """A copy of the document with the edit. Raises CannotEdit when something on the way is no table."""
    result = copy.deepcopy(data) if data is not None else {}
    place = result
    for depth, name in enumerate(edit.key[:-1]):
        if not isinstance(place, dict):
            raise CannotEdit(f"{'.'.join(edit.key[:depth])} is no table")
        if name not in place:
            if edit.remove:
                return result
            place[name] = {}
        place = place[name]
    if not isinstance(place, dict):
        raise CannotEdit(f"{'.'.join(edit.key[:-1]) or 'the document'} is no table")
    if edit.remove:
        place.pop(edit.key[-1], None)
    else:
        place[edit.key[-1]] = copy.deepcopy(edit.value)
    return result


def change_of(data: Any, edit: Edit) -> KeyChange:
    """Recorded at the first missing table on the way, so that taking it out again leaves nothing behind."""
    for depth in range(1, len(edit.key)):
        if not find(data, edit.key[:depth])[0]:
            written = edit.value
            for name in reversed(edit.key[depth:]):
                written = {name: written}
            return KeyChange(edit.key[:depth], False, None, written, edit.remove)
    had, old = find(data, edit.key)
    return KeyChange(edit.key, had, old, None if edit.remove else edit.value, edit.remove)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down: 1 is neither 1.0 nor true. NaN is NaN."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and bool(left == right)
