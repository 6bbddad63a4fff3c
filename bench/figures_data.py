"""Kept results for figures: rows by name, where they come from, and what to run when they are not there."""

from __future__ import annotations

import re
from typing import Any

import report

Row = dict[str, Any]


class Missing(Exception):
    """A figure's result is not kept, or lacks what the figure shows. `command` makes it."""

    def __init__(self, result: str, what: str = "", arguments: str = "") -> None:
        self.command = f"python bench/keep.py {result}{' ' + arguments if arguments else ''}"
        super().__init__(f"bench/results/{result}.json {what or 'is not there'}: {self.command}")


def load(result: str) -> dict[str, Any]:
    """A kept document. Raises Missing."""
    if not (report.RESULTS / f"{result}.json").exists():
        raise Missing(result)
    return report.load(result)


def rows(result: str, pattern: str) -> dict[str, Row]:
    """Rows whose whole name matches, by name. Raises Missing when there is none."""
    found = {row["name"]: row for row in load(result)["rows"] if re.fullmatch(pattern, row["name"])}
    if not found:
        raise Missing(result, f"has no row {pattern}")
    return found


def row(result: str, name: str) -> Row:
    return next(iter(rows(result, re.escape(name)).values()))


def series(result: str, name: str, field: str = "series") -> list[dict[str, Any]]:
    """What a row kept step by step, as one table for each step. Raises Missing."""
    found = row(result, name)
    if not found.get(field):
        raise Missing(result, f"has no {field} in {name}")
    return [dict(zip(found[f"{field}_columns"], step, strict=True)) for step in found[field]]


def source(result: str, samples: str = "", note: str = "", of: list[Row] | None = None) -> str:
    """Where the numbers of `of` (default: of all rows) come from: file, date, commit and machine of each run; samples."""
    parts = [report.origin(load(result), of), samples, note]
    return " · ".join(part for part in parts if part)
