"""Text measured in terminal cells: spans with a role, lines of spans, cutting and filling to a width."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple


class Span(NamedTuple):
    """`role` names what the text means (theme.ROLES); a theme decides how that looks."""

    text: str
    role: str = "text"


Line = tuple[Span, ...]
EMPTY: Line = ()


@lru_cache(maxsize=4096)
def _width_of(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.combining(character) else 1


def width(text: str) -> int:
    """Cells that `text` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width_of, text))


def clean(text: str) -> str:
    """Without what a terminal would obey or join (controls, direction marks, joiners): names come from elsewhere."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "" for c in text if not _joins(c))


def _joins(character: str) -> bool:
    return character in "\u200d\ufe0e\ufe0f" or unicodedata.category(character) in ("Cf", "Co", "Cn", "Cs")


def cut(text: str, cells: int, mark: str = "~") -> str:
    """At most `cells` wide; `mark` ends what was cut. A wide character is never halved."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    kept, used, room = [], 0, cells - width(mark)
    for character in text:
        used += _width_of(character)
        if used > room:
            break
        kept.append(character)
    return "".join(kept) + mark


def fit(text: str, cells: int, align: str = "<") -> str:
    """Exactly `cells` wide: cut, or filled on the right (`<`), left (`>`) or both sides (`^`)."""
    text = cut(text, cells)
    gap = cells - width(text)
    if align == ">":
        return " " * gap + text
    if align == "^":
        return " " * (gap // 2) + text + " " * (gap - gap // 2)
    return text + " " * gap


def line(*parts: Span | str | tuple[str, str]) -> Line:
    """A line from spans, pairs, and plain text."""
    return tuple(Span(p) if isinstance(p, str) else Span(*p) for p in parts if p)


def line_width(of: Line) -> int:
    return sum(width(span.text) for span in of)


def fit_line(of: Line, cells: int) -> Line:
    """Exactly `cells` wide."""
    done: list[Span] = []
    used = 0
    for number, span in enumerate(of):
        size = width(span.text)
        if used + size > cells or (used + size == cells and any(width(s.text) for s in of[number + 1 :])):
            done.append(
                Span(fit(cut(span.text + ("~" if size <= cells - used else ""), cells - used), cells - used), span.role)
            )
            return tuple(done)
        done.append(span)
        used += size
    if used < cells:
        done.append(Span(" " * (cells - used)))
    return tuple(done)


def fill(lines: Sequence[Line], cells: int, rows: int) -> list[Line]:
    """Exactly `rows` lines of `cells`: what is too much is left out, what is missing is blank."""
    fitted = [fit_line(one, cells) for one in lines[:rows]]
    return fitted + [(Span(" " * cells),)] * (rows - len(fitted))


def both_ends(left: Line, right: Line, cells: int) -> Line:
    """`left` and `right` at the two ends; the left gives way."""
    room = max(0, cells - line_width(right))
    return fit_line((*fit_line(left, room), *right), cells)


def beside(*columns: Sequence[Line]) -> list[Line]:
    """Blocks of equally many, already fitted lines side by side."""
    return [tuple(span for part in row for span in part) for row in zip(*columns, strict=True)]


def painted(of: Line, role: str) -> Line:
    """The whole line in one role, as a selected row."""
    return tuple(Span(span.text, role) for span in of)


def plain(lines: Iterable[Line]) -> str:
    """The text alone, without trailing blanks."""
    return "\n".join("".join(span.text for span in one).rstrip() for one in lines)


def wrap(text: str, cells: int, most: int = 99) -> list[str]:
    """Words in lines of at most `cells`; a word that is too long is broken."""
    lines: list[str] = []
    now = ""
    for word in text.split():
        while width(word) > cells:
            if now:
                lines.append(now)
                now = ""
            head = cut(word, cells, "")
            lines.append(head)
            word = word[len(head) :]
        if now and width(now) + 1 + width(word) > cells:
            lines.append(now)
            now = word
        elif word:
            now = f"{now} {word}" if now else word
    if now:
        lines.append(now)
    return lines[:most]


def merged(spans: Iterable[Span]) -> Line:
    """Neighbours of one role become one span."""
    done: list[Span] = []
    for span in spans:
        if done and done[-1].role == span.role:
            done[-1] = Span(done[-1].text + span.text, span.role)
        else:
            done.append(span)
    return tuple(done)


def to_ascii(lines: Iterable[Line]) -> list[Line]:
    """With `?` in each cell of what ASCII does not have."""
    return [
        tuple(
            s if s.text.isascii() else Span("".join(c if c.isascii() else "?" * _width_of(c) for c in s.text), s.role)
            for s in one
        )
        for one in lines
    ]
