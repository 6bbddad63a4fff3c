"""Rows of a benchmark: {name, value, unit, baseline, ratio, samples}, how they are made, shown and handed on."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROWS_FILE = "FT_BENCH_ROWS"  # names a file that gets the rows as well, whatever is shown


def rounded(value: float) -> float:
    """Four significant digits, and all of those before the point."""
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def row(name: str, unit: str, values: Sequence[float], baselines: Sequence[float] = (), **more: Any) -> Row:
    """One row: medians of interleaved `values` and `baselines`, and their ratio; without baselines the ratio is None.

    `more` are further fields: settings of this row, or a `note` for readers.
    """
    value = statistics.median(values)
    baseline = statistics.median(baselines) if baselines else None
    ratio = round(value / baseline, 3) if baseline else None
    made: Row = {"name": name, "value": rounded(value), "unit": unit}
    made |= {"baseline": None if baseline is None else rounded(baseline), "ratio": ratio, "samples": len(values)}
    return made | more


def line(made: Row) -> str:
    """One row for people."""
    text = f"{made['name']:<36} {made['value']:>10,.6g} {made['unit']:<9}"
    if made.get("ratio") is not None:
        text += f" baseline {made['baseline']:>10,.6g}  ratio {made['ratio']:.3f}"
    text += f"  n={made.get('samples') or 1}"
    return text + (f"  ({made['note']})" if made.get("note") else "")


def hand_on(rows: Sequence[Row]) -> None:
    """Write the rows to the file that the caller of this process named in the environment, if it did."""
    if path := os.environ.get(ROWS_FILE):
        Path(path).write_text(json.dumps(list(rows)))


def show(rows: Sequence[Row], as_json: bool) -> None:
    """Print the rows of a whole run, as a JSON list or for people, and hand them on."""
    hand_on(rows)
    if as_json:
        sys.stdout.write(json.dumps(list(rows)) + "\n")
        return
    for made in rows:
        sys.stdout.write(line(made) + "\n")
