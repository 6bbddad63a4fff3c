"""How the value of an option is spelled, on a command line, in a variable or in a file: each parser raises ValueError with what
it expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MIN_KV_TOKENS = 256  # both as in the engine
MAX_THREADS = 256
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_tokens(value: Any) -> int:
    """`65536`, `"64k"` → tokens; k is 1,024. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a number of tokens such as 65536 or 64k")
    match = re.fullmatch(r"(\d[\d_,]*)([kKmM]?)", str(value).strip())
    if match is None:
        raise ValueError("a number of tokens such as 65536 or 64k")
    tokens = int(re.sub(r"[_,]", "", match[1])) * {"": 1, "k": 1024, "m": 1024 * 1024}[match[2].lower()]
    if tokens <= 0:
        raise ValueError("a positive number of tokens")
    return tokens


def parse_kv(value: Any) -> int:
    """Tokens that an engine can serve something with. Raises ValueError."""
    tokens = parse_tokens(value)
    if tokens < MIN_KV_TOKENS:
        raise ValueError(f"a number of tokens of at least {MIN_KV_TOKENS}")
    return tokens


def parse_threads(value: Any) -> int:
    count = parse_count(value)
    if count > MAX_THREADS:
        raise ValueError(f"a positive whole number up to {MAX_THREADS}")
    return count


def parse_port(value: Any) -> int:
    try:
        port = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        port = -1
    if not 1 <= port <= 65535:
        raise ValueError("a port between 1 and 65535")
    return port


def parse_count(value: Any) -> int:
    try:
        count = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        count = -1
    if count < 1:
        raise ValueError("a positive whole number")
    return count


def parse_bytes(value: Any) -> int:
    """`"8g"`, `"500m"`, `"1.5g"`, `4096` → bytes, as the engine reads them (powers of 1,024). Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(?:i?[bB])?", str(value).strip())
    size = 0 if match is None else int(float(match[1]) * (1 << _SHIFTS[match[2].lower()]))
    if size < 1:
        raise ValueError("a size such as 8g, 1.5g or 500m")
    return size


def parse_size(value: Any) -> int:
    """A size, or `"off"` → 0. Raises ValueError."""
    if str(value).strip().lower() in ("off", "0", "false"):
        return 0
    try:
        return parse_bytes(value)
    except ValueError as expected:
        raise ValueError(f"{expected}, or off") from None


def parse_positive(value: Any) -> float:
    """A positive number, such as of seconds or of 10^9 bytes per second. Raises ValueError."""
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number < 1e9:
        raise ValueError("a positive number")
    return number


def one_of(*words: str) -> Callable[[Any], str]:
    """A parser of exactly these words."""

    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return parse


def parse_anticipate(value: Any) -> str:
    word = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
    if word not in ("auto", "on", "off"):
        raise ValueError("auto, on or off")
    return str(word)


def parse_switch(value: Any) -> bool:
    """`"on"`, `"off"`, true, false. Raises ValueError."""
    if isinstance(value, bool):
        return value
    known = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if not isinstance(value, str) or value.strip().lower() not in known:
        raise ValueError("on or off")
    return known[value.strip().lower()]


def parse_name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a non-empty text")
    return value.strip()
