"""Finding the end of a JSON object in text that is still arriving, and reading it without tolerance for loss."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from engine.prompt.depth import is_too_deep

_OUTSIDE = re.compile(r'["{}\[\]<]')
_INSIDE = re.compile(r'["\\]')


class JsonScan:
    """Walks the object that starts at `start`. `position` is where the walk stopped: behind the object, or at a `<`
    outside a string (no JSON has one there), or at the end of what there is. Never re-reads what it has seen."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.position = start
        self.depth = 0
        self.in_string = False
        self.ended = False
        self._escaped = False

    def advance(self, text: str) -> None:
        while not self.ended and self.position < len(text):
            if self._escaped:
                self._escaped = False
                self.position += 1
                continue
            match = (_INSIDE if self.in_string else _OUTSIDE).search(text, self.position)
            if match is None:
                self.position = len(text)
                return
            self.position = match.end()
            self._meet(match.group())

    def _meet(self, character: str) -> None:
        if character == '"':
            self.in_string = not self.in_string
        elif character == "\\":
            self._escaped = True
        elif character in "{[":
            self.depth += 1
        elif character == "<":
            self.position -= 1
            self.ended = True
        else:
            self.depth -= 1
            self.ended = self.depth == 0


def strict_object(text: str, unique: bool = False) -> dict[str, Any] | None:
    """The JSON object in `text`, or None. Raw line breaks inside strings are taken as meant; NaN and the like are not
    JSON, and with `unique` neither is an object with one name twice."""
    value = strict_value(text, unique)
    return value if isinstance(value, dict) else None


def strict_value(text: str, unique: bool = False) -> Any:
    """As `strict_object`, for any value; None when it is no JSON, or deeper than anything that walks it may go."""
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse, object_pairs_hook=_unique if unique else None)
    except (ValueError, RecursionError):
        return None
    return None if is_too_deep(value) else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("one name twice")
    return found
