"""The JSON schema of config.toml, from the same table that reads it."""

from __future__ import annotations

from typing import Any

from ftagent.settings import values
from ftagent.settings.config import OPTIONS, Option

_TOKENS = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d[\d_,]*[kKmM]?$"}]}
_SIZE = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}, {"type": "boolean"}]}
_KINDS: dict[Any, dict[str, Any]] = {
    values.parse_name: {"type": "string", "minLength": 1},
    values.parse_tokens: _TOKENS,
    values.parse_kv: _TOKENS,
    values.parse_switch: {"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]},
    values.parse_count: {"type": "integer", "minimum": 1},
    values.parse_threads: {"type": "integer", "minimum": 1, "maximum": values.MAX_THREADS},
    values.parse_port: {"type": "integer", "minimum": 1, "maximum": 65535},
    values.parse_positive: {"type": "number", "exclusiveMinimum": 0},
    values.parse_size: _SIZE,
    values.parse_bytes: _SIZE,
    values.parse_anticipate: {"anyOf": [{"enum": ["auto", "on", "off"]}, {"type": "boolean"}]},
}


def config_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ft config.toml",
        "type": "object",
        "properties": {option.name: {**_kind(option), "description": option.help} for option in OPTIONS},
    }


def _kind(option: Option) -> dict[str, Any]:
    """One of several words is a text; which words, its help says."""
    return _KINDS.get(option.parse, {"type": "string"})
