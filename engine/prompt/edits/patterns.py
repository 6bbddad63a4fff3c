"""Regular expressions from outside: RE2, so that no pattern and no text can take more than linear time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2

from engine.errors import BadRequest

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. `source` is what the declaration said."""

    source: str
    _compiled: Any

    def span(self, text: str) -> tuple[int, int] | None:
        """Where the pattern first matches in `text`, or None."""
        found = self._compiled.search(_whole(text))
        return None if found is None else (found.start(), found.end())

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Every match, in order, without overlaps."""
        return [(found.start(), found.end()) for found in self._compiled.finditer(_whole(text))]

    def matches(self, text: str) -> bool:
        return self.span(text) is not None


def compile_pattern(source: str, place: str) -> Pattern:
    """Raises BadRequest naming `place` for what RE2 refuses: look-around, back-references, broken syntax, huge repeats."""
    try:
        return Pattern(source, re2.compile(_whole(source), _OPTIONS))
    except re2.error as error:
        reason = error.args[0] if error.args else "not a pattern"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadRequest(
            f"{place}: {source!r} is not an RE2 pattern ({text}).", "Look-around and back-references do not exist here."
        ) from None


def _whole(text: str) -> str:
    """JSON can escape half a character; one that stands alone becomes one that can be encoded."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
