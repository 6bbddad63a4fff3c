"""Rows of a benchmark: {name, value, unit, baseline, ratio, samples}, how they are made and how they are printed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def rounded(value: float) -> float:
    """Four significant digits, and all of those before the point."""
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def row(name: str, unit: str, values: Sequence[float], baselines: Sequence[float] = (), **more: Any) -> Row:
    """One row: medians of interleaved `values` and `baselines`, and their ratio; without baselines the ratio is None."""
    value = statistics.median(values)
    baseline = statistics.median(baselines) if baselines else None
    ratio = round(value / baseline, 3) if baseline else None
    made = {"name": name, "value": rounded(value), "unit": unit}
    made |= {"baseline": None if baseline is None else rounded(baseline), "ratio": ratio, "samples": len(values)}
    return made | more


def show(rows: Sequence[Row], as_json: bool) -> None:
    """Print rows as a JSON list or as a table."""
    if as_json:
        print(json.dumps(rows))
        return
    for made in rows:
        line = f"{made['name']:<34} {made['value']:>10} {made['unit']:<9}"
        if made["baseline"] is not None:
            line += f" baseline {made['baseline']:>10}  ratio {made['ratio']:.3f}"
        print(f"{line}  n={made['samples']}" + (f"  {made['note']}" if "note" in made else ""))
