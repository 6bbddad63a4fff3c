"""stdout is data, stderr is for people. Colour follows the usual variables, per stream."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import IO, Any

from ftagent.text import printable

LEAST_COLUMN = 6  # of a table on a narrow terminal, in characters
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def wants_colour(stream: IO[str], env: Mapping[str, str], choice: str = "auto") -> bool:
    """--color > NO_COLOR > FORCE_COLOR / CLICOLOR_FORCE > CLICOLOR=0 > terminal check > TERM=dumb."""
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0") or env.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if env.get("CLICOLOR") == "0" or env.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Style:
    """Paints text, or leaves it alone."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def __call__(self, text: str, name: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.enabled else text


def print_json(document: Any, stream: IO[str] | None = None) -> None:
    print(printable(json.dumps(document, ensure_ascii=False)), file=stream or sys.stdout, flush=True)


def note(text: str) -> None:
    """One line for a person, on stderr."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Shows changing states on stderr: in place on a terminal, one line per change elsewhere. Silent when quiet."""

    def __init__(self, quiet: bool = False, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.in_place = self.stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
        self.last = ""

    def show(self, text: str, phase: str) -> None:
        """`text` changes often, `phase` seldom; without a terminal only a new phase is printed."""
        if self.quiet:
            return
        if self.in_place:
            self.stream.write(f"\r\x1b[K{text}")
        elif phase != self.last:
            self.stream.write(f"{text}\n")
        self.last = phase
        self.stream.flush()

    def done(self) -> None:
        if not self.quiet and self.in_place and self.last:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def table(rows: list[list[str]], gap: int = 2, whole: bool = False) -> str:
    """Left-aligned columns without trailing blanks; the first row is the head.

    On a terminal that is too narrow the widest columns are cut, and then the last ones left out, unless `whole`: lines that
    wrap are no table. What goes to a file or a program is always whole.
    """
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if not whole and sys.stdout.isatty():
        widths = _fitted(widths, gap, shutil.get_terminal_size((80, 24)).columns)
    return "\n".join(
        (" " * gap).join(_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    )


def _fitted(widths: list[int], gap: int, room: int) -> list[int]:
    widths = list(widths)
    while len(widths) > 1 and sum(min(width, LEAST_COLUMN) + gap for width in widths) - gap > room:
        widths.pop()
    while (over := sum(width + gap for width in widths) - gap - room) > 0 and max(widths) > LEAST_COLUMN:
        widest = max(widths)
        next_widest = max((width for width in widths if width < widest), default=LEAST_COLUMN)
        at = widths.index(widest)
        widths[at] = max(LEAST_COLUMN, min(widest - 1, max(next_widest, widest - over)))
    return widths


def _cut(cell: str, width: int) -> str:
    """Of a path the end tells more than the middle."""
    if len(cell) <= width:
        return cell
    kept = width - 1
    tail = kept * 2 // 3 if "/" in cell else 0
    return cell[: kept - tail] + "…" + (cell[-tail:] if tail else "")
