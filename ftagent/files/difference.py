"""Differences of files as people read them: values that look secret are masked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftagent.files.formats import load
from ftagent.files.keys import CannotEdit
from ftagent.launch.environment import looks_like_credential, mask_urls

MASK = "****"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TOKEN = re.compile(r"\bft_(sess|admin)_[A-Za-z0-9_-]+|\b(sk|ghp|hf|xox[bp])[-_][A-Za-z0-9_-]{8,}")
_HARMLESS = re.compile(r"[\d.]+|true|false|null", re.IGNORECASE)
_LINE = re.compile(
    r"""^(?P<head>[ +\-]?\s*["']?(?P<name>[\w.-]+)["']?\s*[:=]\s*)(?P<value>["'][^"']+["']|[^\s"'{\[#,]+)"""
)


def is_secret(name: str) -> bool:
    return looks_like_credential(_CAMEL.sub("_", name).replace("-", "_"), "")


def unified(path: Path, before: bytes | None, after: bytes | None, format_: str, home: Path | None = None) -> str:
    """A unified diff, masked; "" when both are the same."""
    if before == after:
        return ""
    texts = [(data or b"").decode("utf-8", "replace") for data in (before, after)]
    secrets = sorted({secret for text in texts for secret in secrets_of(text, format_)}, key=len, reverse=True)
    name = str(path)
    lines = difflib.unified_diff(
        texts[0].splitlines(),
        texts[1].splitlines(),
        "/dev/null" if before is None else name,
        "/dev/null" if after is None else name,
        lineterm="",
    )
    return "".join(_masked(line, secrets) + "\n" for line in lines) or f"{name}: line ends differ\n"


def masked_value(key: tuple[str, ...], value: Any) -> Any:
    """The value for people and for JSON: with `****` for what looks secret at any depth."""
    if isinstance(value, dict):
        return {name: masked_value((*key, str(name)), item) for name, item in value.items()}
    if isinstance(value, list):
        return [masked_value(key, item) for item in value]
    if isinstance(value, str) and value:
        return MASK if key and is_secret(key[-1]) else mask_urls(_TOKEN.sub(MASK, value))
    return value


def secrets_of(text: str, format_: str) -> set[str]:
    """Strings under keys that look secret; the empty set for a text that does not parse."""
    try:
        return set(_leaves(load(text.removeprefix("\ufeff"), format_), False))
    except CannotEdit:
        return set()


def _leaves(data: Any, secret: bool) -> Iterator[str]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _leaves(value, is_secret(str(name)))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, secret)
    elif secret and isinstance(data, str) and len(data) > 3:
        yield data


def _masked(line: str, secrets: list[str]) -> str:
    for secret in secrets:
        line = line.replace(secret, MASK)
    match = _LINE.match(line)
    if match and is_secret(match["name"]) and not _HARMLESS.fullmatch(match["value"]):
        quote = match["value"][0] if match["value"][0] in "\"'" else ""
        line = match["head"] + quote + MASK + quote + line[match.end() :]
    return mask_urls(_TOKEN.sub(MASK, line))
