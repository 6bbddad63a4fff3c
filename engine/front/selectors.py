"""Selectors of a declaration's [wire] section: `header:NAME`, `body:a.b.c`, with `:json(key)` or `:presence` after it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_SELECTOR = re.compile(r"(header|body):([^:]+)(?::(?:json\((\w+)\)|(presence)))?")


def first_present(selectors: Sequence[Any], headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The value of the first selector that finds one. Selectors that are none of ours find nothing."""
    for selector in selectors:
        match = _SELECTOR.fullmatch(selector) if isinstance(selector, str) else None
        if not match:
            continue
        place, name, key, _ = match.groups()
        value: Any = headers.get(name.lower()) if place == "header" else _walk(body, name)
        if key and isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                continue
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str) and value:
            return value
    return None


def wire_ids(
    declaration: Mapping[str, Any] | None, headers: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """The agent's own session id and its parent's, where the declaration says how a request carries them."""
    wire = (declaration or {}).get("wire")
    if not isinstance(wire, Mapping):
        return None, None
    session, parent = wire.get("session"), wire.get("parent")
    return (
        first_present(session, headers, body) if isinstance(session, list) else None,
        first_present(parent, headers, body) if isinstance(parent, list) else None,
    )


def _walk(body: Mapping[str, Any], path: str) -> Any:
    value: Any = body
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
