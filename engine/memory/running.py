"""How many sequences are computed at once unless somebody says: from what this machine measured.

A step of n rows reads every weight outside the experts once, and each expert that one of its rows wants; what is missing on the device
comes at the rate of fills and in-place work together, whatever their split (q* ends both at once), and every row has its arithmetic.
Experts are shared the less the sparser a model is, and arithmetic by nobody. So each doubling of n gives less, and the default is the
largest n that still gives a fifth more tokens per second than half of it. Torch-free.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.memory.geometry import Geometry
from engine.memory.hardware import cores_text, machine_text

UNMEASURED = 8
MOST = 16
GAIN = 1.2  # tokens per second, of twice as many rows
RATES, BANDWIDTH = "ft.rates/2", "ft.bandwidth/1"


@dataclass(frozen=True, slots=True)
class Running:
    """`source` says in words what the number comes from."""

    requests: int
    source: str


@dataclass(frozen=True, slots=True)
class Speeds:
    """Weight bytes per second of a decode step, seconds of one row's arithmetic, and q* of one miss where fills were measured."""

    host: float
    row_s: float
    fills: float | None = None


def running(given: int | None, profiles: Path | None, model: str, geometry: Geometry, device: str = "cpu") -> Running:
    """What was `given`, or what follows from measurements in the folder `profiles`, or a number that suits most."""
    if given is not None:
        return Running(given, "given")
    speeds = measured(profiles, model, geometry, device) if profiles is not None else None
    if speeds is None:
        return Running(UNMEASURED, "nothing is measured yet")
    requests, last = 1, 1 / step_s(geometry, speeds, 1)
    while requests < MOST:
        per_s = 2 * requests / step_s(geometry, speeds, 2 * requests)
        if per_s < GAIN * last:
            break
        requests, last = 2 * requests, per_s
    split = "" if speeds.fills is None else f", {speeds.fills:.0%} of misses filled"
    read = f"{speeds.host / 1e9:.1f} GB/s of weights{split}, {1 / speeds.row_s:,.0f} tokens/s of arithmetic"
    return Running(requests, f"twice as many give less than {GAIN - 1:.0%} more tokens/s at {read}")


def step_s(geometry: Geometry, speeds: Speeds, rows: int) -> float:
    """Seconds of one decode step of so many sequences."""
    return (dense_bytes(geometry) + experts_bytes(geometry, rows)) / speeds.host + rows * speeds.row_s


def experts_bytes(geometry: Geometry, rows: int) -> float:
    """Of the experts that at least one of `rows` independent rows wants."""
    if not geometry.experts:
        return 0.0
    wanted = 1 - (1 - geometry.top_k / geometry.experts) ** rows
    return geometry.moe_layers * geometry.experts * wanted * geometry.expert_bytes


def dense_bytes(geometry: Geometry) -> float:
    """What every step reads outside the experts: all but about an embedding, of which it reads a row."""
    return max(0.0, geometry.dense_bytes - 2.0 * geometry.vocab_size * geometry.hidden_size)


def measured(profiles: Path, model: str, geometry: Geometry, device: str) -> Speeds | None:
    """From the decode steps and prefills that an engine kept, and from `ft bench bw` where that was run; None: not enough."""
    for document in _documents(profiles, "rates-*.json", RATES):
        if document.get("model") != model or document.get("machine") != cores_text():
            continue
        try:
            row_s = float(document["fit"]["token_s"])
            step = statistics.median(float(seconds) for _, seconds in document["steps"])
        except (KeyError, TypeError, ValueError, statistics.StatisticsError):
            continue
        if row_s <= 0 or step <= row_s:
            continue
        host = (dense_bytes(geometry) + experts_bytes(geometry, 1)) / (step - row_s)
        bandwidth = _bandwidth(profiles, geometry, device)
        return Speeds(host, row_s) if bandwidth is None else Speeds(bandwidth[1], row_s, bandwidth[0] / bandwidth[1])
    return None


def _bandwidth(profiles: Path, geometry: Geometry, device: str) -> tuple[float, float] | None:
    """(fill, host) in bytes per second, for experts of this size on a device of its own."""
    if device == "cpu":
        return None
    for document in _documents(profiles, f"{device}-*-{geometry.hidden_size}x{geometry.expert_width}.json", BANDWIDTH):
        fill, host = document.get("fill"), document.get("host")
        here = str(document.get("key")).startswith(f"{machine_text()} | ")
        if here and isinstance(fill, int | float) and isinstance(host, int | float) and 0 < fill <= host:
            return float(fill), float(host)
    return None


def _documents(folder: Path, pattern: str, schema: str) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(pattern)):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and document.get("schema") == schema:
            yield document
