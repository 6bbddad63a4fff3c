"""Bars, stacked bars and sparklines of exact widths."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.watchdog import level_of
from ftagent.dashboard.widgets.cells import Line, Span


def severity(share: float | None) -> str:
    """The role of a share of a limit: amber from half of it, red from four fifths."""
    if share is None:
        return "dim"
    return {"ok": "good", "amber": "warn", "red": "bad"}[level_of(share, 1.0)]


def bar(share: float | None, cells: int, glyphs: Glyphs, role: str = "accent") -> Line:
    """`cells` wide; of something that has begun at least one is full, and not all of what has not ended."""
    if share is None or cells <= 0:
        return (Span(" " * max(0, cells), "dim"),)
    full = round(max(0.0, min(1.0, share)) * cells)
    full = max(full, 1) if share > 0 else full
    full = min(full, cells - 1) if share < 1 else full
    return tuple(
        span for span in (Span(glyphs.full * full, role), Span(glyphs.empty * (cells - full), "dim")) if span.text
    )


def shares(parts: Sequence[float], cells: int) -> list[int]:
    """Whole cells per part, adding up to `cells`; what is there gets one as long as cells last."""
    total = sum(parts)
    if total <= 0 or cells <= 0:
        return [0] * len(parts)
    exact = [max(0.0, part) * cells / total for part in parts]
    given = [max(int(value), 1 if part > 0 else 0) for value, part in zip(exact, parts, strict=True)]
    while sum(given) > cells:
        most = max(range(len(parts)), key=lambda i: (given[i] > 1, given[i] - exact[i], given[i]))
        given[most] -= 1
    by_rest = sorted(range(len(parts)), key=lambda i: given[i] - exact[i])
    for i in by_rest[: cells - sum(given)]:
        given[i] += 1
    return given


def stacked(parts: Sequence[tuple[str, float, str]], cells: int, glyphs: Glyphs) -> Line:
    """(letter, amount, role) beside each other: the letter in each part says what colour alone must not."""
    widths = shares([amount for _, amount, _ in parts], cells)
    spans = []
    for (letter, _, role), many in zip(parts, widths, strict=True):
        if many:
            filler = letter if glyphs.ascii else glyphs.full if letter != glyphs.empty else letter
            text = letter * many if many < 3 or glyphs.ascii else f"{letter}{filler * (many - 1)}"
            spans.append(Span(text, role))
    return tuple(spans)


def spark(
    values: Sequence[float | None], cells: int, glyphs: Glyphs, low: float = 0.0, high: float | None = None
) -> str:
    """The newest at the right, one value a cell (the mean of several when there are more); unknown is blank."""
    known = [v for v in values if v is not None]
    top = high if high is not None else max(known, default=0.0)
    text = ""
    for value in _columns(values, cells):
        if value is None:
            text += " "
        elif top <= low:
            text += glyphs.steps[0]
        else:
            step = int(max(0.0, min(1.0, (value - low) / (top - low))) * (len(glyphs.steps) - 1) + 0.5)
            text += glyphs.steps[step]
    return text.rjust(cells)


def _columns(values: Sequence[float | None], cells: int) -> list[float | None]:
    if len(values) <= cells:
        return list(values)
    columns: list[float | None] = []
    for i in range(cells):
        part = [v for v in values[i * len(values) // cells : (i + 1) * len(values) // cells] if v is not None]
        columns.append(sum(part) / len(part) if part else None)
    return columns
