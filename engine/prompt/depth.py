"""How deep lists and objects may lie in each other: whatever walks them goes as deep, and Python goes no deeper than a thousand calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 128


def is_too_deep(value: Any) -> bool:
    """Whether `value`, as read from JSON, has more than MAX_DEPTH lists and objects in each other."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, list | dict)]
        if not level:
            return False
    return True


def _values(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
