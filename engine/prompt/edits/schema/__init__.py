"""The published JSON schemas of `edits/1` and `template/1`, and the check against them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry, Resource

from engine.errors import BadRequest

_FILES = {"edits/1": "edits-1.json", "template/1": "template-1.json"}
_HINT = "The format: docs/edit-boundary-declarations.md."


def check(data: Any, name: str, place: str) -> None:
    """Raises BadRequest naming the field below `place` at which `data` departs from the schema `name`."""
    error = best_match(_validator(name).iter_errors(data))
    if error is not None:
        raise BadRequest(_sentence(error, place), _HINT)


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema called edits/1 or template/1, as published."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / _FILES[name]).read_text(encoding="utf-8"))
    return found


@cache
def _validator(name: str) -> Draft202012Validator:
    contents = [schema(known) for known in _FILES]
    registry: Any = Registry().with_resources([(s["$id"], Resource.from_contents(s)) for s in contents])
    return Draft202012Validator(schema(name), registry=registry)


def _sentence(error: ValidationError, place: str) -> str:
    path = field_path(place, error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties", {})
        unknown = sorted(str(key) for key in error.instance if key not in known)
        return (
            f"{path}.{unknown[0] if unknown else '?'}: unknown key; known here: {', '.join(sorted(known)) or 'none'}."
        )
    if error.validator == "required":
        missing = next((key for key in error.validator_value if key not in error.instance), "?")
        return f"{path}.{missing}: required."
    if error.validator in ("enum", "const"):
        allowed = error.validator_value if error.validator == "enum" else [error.validator_value]
        return f"{path}: {_short(error.instance)} is not one of {', '.join(map(str, allowed))}."
    if error.validator == "type":
        kinds = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        return f"{path}: expected {' or '.join(kinds)}, not {_short(error.instance)}."
    return f"{path}: {_short(error.instance)} breaks {error.validator} {_short(error.validator_value)}."


def field_path(place: str, path: Iterable[str | int]) -> str:
    """`rule[2].tail.tokens` style."""
    text = place
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
