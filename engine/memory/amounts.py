"""Amounts as flags and settings spell them."""

from __future__ import annotations

import re

MIN_KV_TOKENS = 256  # fewer serve nothing
TOO_FEW = f"too few tokens to serve anything: {MIN_KV_TOKENS} are the least"
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_tokens(text: str) -> int:
    """A token count: "65536", "64k", "1m" (k = 1024). Raises ValueError on anything else and below 1."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    tokens = int(number) * {"": 1, "k": 1024, "m": 1024 * 1024}.get(unit, 0)
    if tokens < 1:
        raise ValueError(f"{text!r} is no token count")
    return tokens


def parse_bytes(text: str) -> int:
    """A size: "4096", "512m", "8g", "1.5g", "2 GiB" (powers of 1024). Raises ValueError on anything else and below 1."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = 0 if match is None else int(float(match[1]) * (1 << _SHIFTS[match[2]]))
    if size < 1:
        raise ValueError(f"{text!r} is no size such as 8g, 1.5g or 500m")
    return size
