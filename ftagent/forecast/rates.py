"""Prefill rates that were kept: by an engine at its end, or in the rows of a benchmark."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftagent.atomic import read_json

SCHEMA = "ft.rates/2"
LEAST_SAMPLES = 3
MEASURED, BENCH, NONE = "measured", "bench", "none"


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of a prefill: `fixed_s` + new * `token_s` + new * (depth + new / 2) * `depth_s` + depth * `read_s`."""

    fixed_s: float
    token_s: float
    depth_s: float
    read_s: float
    samples: int
    source: str  # measured | bench
    p95: float | None = None  # how many times as long one of twenty takes; None: nobody measured it

    def seconds(self, new: int, cached: int) -> float:
        """Until the first token of a prompt with `new` tokens behind `cached` ones."""
        return self.fixed_s + new * self.token_s + new * (cached + new / 2) * self.depth_s + cached * self.read_s


def find(model: str, profiles: Path, results: Path) -> Rates | None:
    """Rates of this model on this machine: those an engine kept, else those of `ft bench agent`; None: neither."""
    return kept(model, profiles) or benched(model, results)


def kept(model: str, profiles: Path) -> Rates | None:
    """What an engine wrote at its end."""
    for path in sorted(profiles.glob("rates-*.json")):
        document = read_json(path) or {}
        fit = document.get("fit")
        if document.get("schema") != SCHEMA or not isinstance(fit, dict) or document.get("model") != model:
            continue
        samples = document.get("samples")
        count = len(samples) if isinstance(samples, list) else 0
        if document.get("machine") != machine() or count < LEAST_SAMPLES:
            continue
        values = [_number(fit.get(name)) for name in ("fixed_s", "token_s", "depth_s", "read_s")]
        if None not in values:
            fixed_s, token_s, depth_s, read_s = (value or 0.0 for value in values)
            return Rates(fixed_s, token_s, depth_s, read_s, count, MEASURED, _number(fit.get("p95")))
    return None


def benched(model: str, results: Path) -> Rates | None:
    """The newest `agent.*.prefill` row of the model among kept benchmark runs."""
    found: tuple[str, float] | None = None
    for path in results.glob("agent-*.json"):
        document = read_json(path) or {}
        for row in document.get("rows") or []:
            named = isinstance(row, dict) and str(row.get("name")).endswith(".prefill") and row.get("model") == model
            value = _number(row.get("value")) if named else None
            if value and (found is None or str(document.get("date")) > found[0]):
                found = (str(document.get("date")), value)
    return None if found is None else Rates(0.0, 1 / found[1], 0.0, 0.0, 1, BENCH)


def machine() -> str:
    """The processor and how many of its cores may be used: rates of another machine say nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name or platform.processor()}, {cores} cores"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
