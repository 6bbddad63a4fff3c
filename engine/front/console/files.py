"""The files of the page: a fixed list, read once, with the headers that keep everything else out of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # where it is known, nothing can make markup or code of a text
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str


@cache
def files() -> dict[str, PageFile]:
    """By name; `index.html` is the page."""
    found = [path for path in _PAGE.iterdir() if path.suffix in _TYPES]
    return {path.name: PageFile(path.read_bytes(), _TYPES[path.suffix]) for path in found}
