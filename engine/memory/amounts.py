"""Amounts as flags and settings spell them."""

from __future__ import annotations


def parse_tokens(text: str) -> int:
    """A token count: "65536", "64k", "1m" (k = 1024). Raises ValueError on anything else and below 1."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    tokens = int(number) * {"": 1, "k": 1024, "m": 1024 * 1024}.get(unit, 0)
    if tokens < 1:
        raise ValueError(f"{text!r} is no token count")
    return tokens


def parse_bytes(text: str) -> int:
    """A size: "4096", "512m", "8g", "1.5g" (powers of 1024). Raises ValueError on anything else and below 1."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].isalpha() else (text, "")
    scale = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}.get(unit)
    if scale is None or not number.replace(".", "", 1).isdecimal() or int(float(number) * (1 << scale)) < 1:
        raise ValueError(f"{text!r} is no size such as 512m or 8g")
    return int(float(number) * (1 << scale))
