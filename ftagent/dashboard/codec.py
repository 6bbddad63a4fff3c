"""Frames as JSON and back: for `--json`, and for the file of the flight recorder."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ftagent.dashboard.model import SCHEMA, Frame


def to_json(frame: Frame) -> dict[str, Any]:
    """`ft.dashboard/1`. Unknown is null."""
    return {"schema": SCHEMA, **_plain(frame)}


def from_json(document: Mapping[str, Any]) -> Frame:
    """Raises ValueError for what is no frame. Keys that this version does not know are ignored, missing ones are unknown."""
    if document.get("schema") != SCHEMA:
        raise ValueError(f"not {SCHEMA}")
    try:
        made: Frame = _reader(Frame)(document)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a frame: {error}") from None
    return made


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type from its JSON."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)

        def read(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise TypeError(f"{value!r} is no object")
            return kind(**{n: _reader(hint)(value[n]) for n, hint in hints.items() if n in value})

        return read
    if origin in (Union, types.UnionType):
        inner = _reader(next(one for one in arguments if one is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            item = _reader(arguments[0])
            return lambda value: tuple(item(one) for one in value)
        items = [_reader(one) for one in arguments]
        return lambda value: tuple(item(one) for item, one in zip(items, value, strict=True))
    if origin is Literal:
        return lambda value: _one_of(value, arguments)
    if kind is float:
        return lambda value: _checked(value, (int, float))
    if kind in (int, str, bool):
        return lambda value: _checked(value, (kind,))
    return dict if origin is not None else lambda value: value


def _checked(value: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{value!r} is no {kinds[-1].__name__}")
    return value


def _one_of(value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise TypeError(f"{value!r} is none of {known}")
    return value
