"""What session.json has to look like for the rest of ft to rely on it: a record of another shape counts as unreadable."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import NoneType
from typing import Any

from ftagent.session.links import STRENGTH

SCHEMA = "ft.session/1"
# A type or several, a test, [of each item], or {of each key}; a key that ends in ! has to be there.
_Spec = type | tuple[type, ...] | Callable[[Any], bool] | list[Any] | dict[str, Any]


def _time(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _time_or_none(value: Any) -> bool:
    return value is None or _time(value)


_TEXT = (str, NoneType)
_COUNT = (int, NoneType)
_STATS = {
    "requests": _COUNT,
    "prompt_tokens": _COUNT,
    "cached_tokens": _COUNT,
    "output_tokens": _COUNT,
    "ttft_p50_s": (int, float, NoneType),
}


def _or_none(spec: _Spec) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value, spec)


_RECORD: dict[str, Any] = {
    "schema": lambda value: value == SCHEMA,
    "name!": str,
    "created": str,
    "project": {
        "root": str,
        "cwd": str,
        "branch": _TEXT,
        "folder": (list, NoneType),
        "worktree": _or_none({"path!": str, "branch!": str, "by": _TEXT}),
    },
    "agent": {"name": str, "version": _TEXT, "path": _TEXT},
    "harness": [
        {
            "id!": str,
            "source!": lambda value: value in STRENGTH,
            "confidence": _TEXT,
            "parent": _TEXT,
            "first_seen": _TEXT,
            "last_seen": _TEXT,
            "ended_by": _TEXT,
            "file": _TEXT,
        }
    ],
    "model": _or_none({"id": _TEXT, "ctx": _COUNT}),
    "files": [str],
    "written": dict,
    "runs": [
        {"start!": _time, "end": _time_or_none, "exit": _COUNT, "tmux": _TEXT, "stats": _or_none(_STATS)},
    ],
    "stats": _or_none(_STATS),
    "engine": _or_none({"warm": _or_none({"tier": _TEXT})}),
    "parent": _TEXT,
}


def is_record(document: Any) -> bool:
    """Whether a document is a session's record. Much of it may be missing; keys that are not known here may hold anything."""
    return fits(document, _RECORD)


def fits(value: Any, spec: _Spec) -> bool:
    if isinstance(spec, dict):
        if not isinstance(value, dict):
            return False
        for key, inner in spec.items():
            name = key.removesuffix("!")
            if name in value:
                if not fits(value[name], inner):
                    return False
            elif key != name:
                return False
        return True
    if isinstance(spec, list):
        return isinstance(value, list) and all(fits(item, spec[0]) for item in value)
    if isinstance(spec, type | tuple):
        return isinstance(value, spec)
    return spec(value)
