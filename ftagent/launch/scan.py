"""What the files that the agent will read say about other places: base URLs, keys, helpers and variables of its tools.

The adapters see to it that none of this moves a request of the agent. It is named because tools and servers that the
agent starts may still use it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ftagent.launch.environment import looks_like_credential
from harnesses.contract import Warning_
from harnesses.findings import place

_URL_KEY = re.compile(r"(base|api)_?url$|endpoint$|^url$|_url$|^proxy$", re.IGNORECASE)
_HELPER_KEY = re.compile(r"helper$|^notify$|(refresh|export)$|command_for_(key|token)", re.IGNORECASE)
_SECRET_KEY = re.compile(r"api_?key$|token$|secret$|password$|bearer", re.IGNORECASE)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_BYTES = 256 * 1024  # a conversation that is read along is no configuration


def scan(files: Mapping[str, str], home: Path, named: Sequence[Warning_]) -> list[Warning_]:
    """One warning for each finding that `named` does not hold already. Values are never part of it."""
    texts = [warning.text for warning in named]
    found = []
    for name, text in files.items():
        for keys, what in _findings(_parsed(name, text) if len(text) <= _MOST_BYTES else None):
            where = place(Path(name), text, keys[-1], home)
            if not any(where in text and keys[-1] in text for text in texts):
                found.append(Warning_("FT-W0115 in-a-file", f"{where} {'.'.join(keys)} {what}."))
    return found


def _findings(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, inner in _items(value):
        path = (*keys, key) if key else keys
        if isinstance(inner, dict | list) and not _HELPER_KEY.search(key):
            yield from _findings(inner, path)
        elif not inner or not path:
            continue
        elif _HELPER_KEY.search(path[-1]):
            yield path, "names a program that the agent may start"
        elif isinstance(inner, str):
            if _URL_KEY.search(path[-1]) and _is_elsewhere(inner):
                yield path, "is an address elsewhere; no request of the model goes there in this launch"
            elif _SECRET_KEY.search(path[-1]) or (
                len(path) > 1
                and path[-2] in ("env", "environment", "headers")
                and looks_like_credential(path[-1], inner)
            ):
                yield (
                    path,
                    "holds a credential; the model's requests do not carry it, but a tool that it was given to has it",
                )


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((str(key), inner) for key, inner in value.items())
    return (("", inner) for inner in value) if isinstance(value, list) else ()


def _is_elsewhere(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return True
    return bool(parts.scheme and parts.hostname) and parts.hostname not in _LOOPBACK


def _parsed(name: str, text: str) -> Any:
    """None for what cannot be parsed: whether that matters is for the agent's adapter to say."""
    try:
        if name.endswith(".toml"):
            return tomllib.loads(text)
        if name.endswith((".json", ".jsonc", ".json5")):
            import json

            try:
                return json.loads(text)
            except ValueError:
                import json5

                return json5.loads(text)
    except ValueError:
        return None
    return None
