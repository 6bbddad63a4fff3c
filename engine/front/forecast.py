"""When will the first token come? A fit over the newest prefills, by new tokens and by how deep they lie.

A prefill costs  fixed + new * token + new * (depth + new / 2) * pair  seconds: what every forward costs, each token's own work, and
its attention to all before it. The fit is made anew for each question, and prefills of a like size and depth count most: it is
piecewise without pieces. How far it was off for those gives the p50 and the p95.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from engine.front.records import RequestRecord

SCHEMA = "ft.rates/1"
SAMPLES = 200  # newest ones that count
LEAST = 3  # fewer say nothing
MEASURED, NONE = "measured", "none"
_AGE = 0.98  # weight of a sample beside the next newer one
_FAR = 0.02  # weight that a sample of quite another size keeps, so that there is always something to go by
_OCTAVES = 1.0, 2.0  # how fast likeness falls with new tokens and with depth, in factors of two
_LOG = logging.getLogger("engine.front")
_Features = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One prefill: `seconds` from its admission, disk aside, to its first token. `alone`: no other prefill ran beside it."""

    new: int
    depth: int
    seconds: float
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds; the TTFT ones None while there is no data. `prefill_s` is the middle one, as `ttft_p50_s`."""

    queue_s: float | None
    restore_s: float | None
    prefill_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    samples: int
    source: str

    def json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Pool:
    """All routed experts of a model."""

    experts: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Floor:
    """A chunk cannot take less than the experts that must be brought in for it."""

    chunk_tokens: int
    chunk_s: float

    def seconds(self, new: int) -> float:
        return math.ceil(new / self.chunk_tokens) * self.chunk_s

    @staticmethod
    def of(stats: dict[str, Any] | None, pool: Pool) -> Floor | None:
        """From the worker's snapshot: experts outside of the fast tier over the measured fill rate. None: nothing is brought in."""
        found = stats or {}
        experts, chunk = found.get("experts") or {}, (found.get("settings") or {}).get("chunk_tokens")
        rate, slots = (experts.get("rates") or {}).get("fill_bytes_per_s"), experts.get("slots")
        if not rate or not slots or not chunk or slots >= pool.experts:
            return None
        return Floor(int(chunk), pool.bytes * (1 - slots / pool.experts) / rate)


class Forecast:
    """Of one model on this machine. `path` None: rates are not kept; reads what was kept there before."""

    def __init__(self, path: Path | None, model: str, pool: Pool = Pool(0, 0)) -> None:
        self.model = model
        self.pool = pool
        self._path = path
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._restores: deque[float] = deque(maxlen=SAMPLES)  # tokens per second, from disk
        self._holds: deque[float] = deque(maxlen=SAMPLES)  # from the first token to the first thing a client can see
        self._renders: deque[float] = deque(maxlen=SAMPLES)  # seconds per prompt token
        self._errors: deque[float] = deque(maxlen=SAMPLES)
        self._fresh = 0
        self._read()

    @staticmethod
    def of_model(folder: Path | None, model: str, pool: Pool) -> Forecast:
        """That of `model`, kept in `folder`."""
        if folder is None:
            return Forecast(None, model, pool)
        name = blake2b(f"{model}\n{machine()}".encode(), digest_size=8).hexdigest()
        return Forecast(folder / f"rates-{name}.json", model, pool)

    def observe(self, record: RequestRecord, alone: bool = True) -> None:
        """A request is over: learn from it, and judge what was predicted for it."""
        if (
            record.ttft_s is None
            or record.first_token_s is None
            or record.cached_tokens is None
            or not record.prompt_tokens
        ):
            return
        new = record.prompt_tokens - record.cached_tokens
        restore_s = record.restore_s or 0.0
        seconds = record.first_token_s - (record.queue_s or 0.0) - restore_s
        if new > 0 and seconds > 0:
            self.add(Sample(new, record.cached_tokens, seconds, alone))
        if record.tier == "disk" and restore_s > 0:
            self._restores.append(record.cached_tokens / restore_s)
        render_s = record.render_s or 0.0
        self._holds.append(max(0.0, record.ttft_s - render_s - record.first_token_s))
        self._renders.append(render_s / record.prompt_tokens)
        if record.predicted_ttft_s is not None and record.ttft_s > 0:
            self._errors.append(abs(record.predicted_ttft_s - record.ttft_s) / record.ttft_s)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        self._fresh += 1

    def predict(
        self,
        new: int,
        cached: int,
        ahead: Iterable[tuple[int, int]] = (),
        disk: bool = False,
        floor: Floor | None = None,
        render_s: float | None = None,
    ) -> Prediction:
        """For a prompt of `new` tokens behind `cached` ones, which come from `disk` or lie in memory.

        `ahead` are the prefills that run or wait, as (tokens left, depth). They share the machine with this one, so that it waits
        for as much of each as it has work of its own. `render_s` replaces the usual time from text to tokens where it is known.
        """
        samples = self._usable()
        if len(samples) < LEAST:
            return Prediction(None, None, None, None, None, len(samples), NONE)
        fit = _fit(samples, new, cached)
        least = floor.seconds(new) if floor else 0.0
        middle, high = (max(fit.seconds(new, cached) * factor, least) for factor in (fit.p50, fit.p95))
        queue_s = sum(min(self._alone(samples, *other), middle) for other in ahead)
        restore_s = 0.0
        if disk and cached:
            rate = _quantile([(r, 1.0) for r in self._restores], 0.5)
            restore_s = cached / rate if rate else 0.0
        if render_s is None:
            render_s = (new + cached) * (_quantile([(r, 1.0) for r in self._renders], 0.5) or 0.0)
        around = render_s + queue_s + restore_s + (_quantile([(h, 1.0) for h in self._holds], 0.5) or 0.0)
        return Prediction(
            queue_s=round(queue_s, 4),
            restore_s=round(restore_s, 4),
            prefill_s=round(middle, 4),
            ttft_p50_s=round(around + middle, 4),
            ttft_p95_s=round(around + high, 4),
            samples=len(samples),
            source=MEASURED,
        )

    def error(self) -> dict[str, Any]:
        """How far predictions were off: the p90 of |predicted - actual| / actual, None before the first."""
        made = _quantile([(e, 1.0) for e in self._errors], 0.9)
        return {
            "p90_error": None if made is None else round(made, 4),
            "checked": len(self._errors),
            "samples": len(self._samples),
        }

    def write(self) -> None:
        """Keep the rates, when there are new ones. Blocks; a folder that cannot be written to costs the next start its forecasts."""
        samples = self._usable()
        if self._path is None or not self._fresh or len(samples) < LEAST:
            return
        whole = _fit(samples, None, None)
        data = {
            "schema": SCHEMA,
            "model": self.model,
            "machine": machine(),
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "fit": {
                "fixed_s": whole.fixed * whole.p50,
                "token_s": whole.token * whole.p50,
                "depth_s": whole.pair * whole.p50,
            },
            "samples": [[s.new, s.depth, round(s.seconds, 5)] for s in samples],
        }
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, suffix=".tmp", delete=False) as file:
                json.dump(data, file)
            Path(file.name).replace(self._path)
        except OSError as failure:
            _LOG.warning("prefill rates are not kept: %s", failure)

    def _usable(self) -> list[Sample]:
        """Those that had the machine for themselves, where there are enough of them."""
        alone = [sample for sample in self._samples if sample.alone]
        return alone if len(alone) >= LEAST else list(self._samples)

    def _alone(self, samples: Sequence[Sample], new: int, depth: int) -> float:
        fit = _fit(samples, new, depth)
        return fit.seconds(new, depth) * fit.p50

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            document = json.loads(self._path.read_text())
            if document["schema"] == SCHEMA and document["model"] == self.model:
                for new, depth, seconds in document["samples"][-SAMPLES:]:
                    self._samples.append(Sample(int(new), int(depth), float(seconds)))
        except (OSError, ValueError, TypeError, KeyError):
            self._samples.clear()


@dataclass(frozen=True, slots=True)
class _Fit:
    fixed: float
    token: float
    pair: float
    p50: float = 1.0  # factors on the fit
    p95: float = 1.0

    def seconds(self, new: int, depth: int) -> float:
        return self.fixed + self.token * new + self.pair * new * (depth + new / 2)


def _fit(samples: Sequence[Sample], new: int | None, depth: int | None) -> _Fit:
    """Of relative errors, with no negative part. With a place, samples near it count most."""
    weights = [_AGE ** (len(samples) - 1 - i) * _likeness(sample, new, depth) for i, sample in enumerate(samples)]
    rows = [_features(sample) for sample in samples]
    parts = _least_squares(
        rows, [s.seconds for s in samples], [w / s.seconds**2 for w, s in zip(weights, samples, strict=True)]
    )
    made = _Fit(*parts)
    off = [
        (s.seconds / fitted, w)
        for s, w in zip(samples, weights, strict=True)
        if (fitted := made.seconds(s.new, s.depth)) > 0
    ]
    p50 = _quantile(off, 0.5) or 1.0
    return _Fit(*parts, p50=p50, p95=max(p50, _quantile(off, 0.95) or 1.0))


def _likeness(sample: Sample, new: int | None, depth: int | None) -> float:
    if new is None or depth is None:
        return 1.0
    by_new = math.log2((new + 8) / (sample.new + 8)) / _OCTAVES[0]
    by_depth = math.log2((depth + 256) / (sample.depth + 256)) / _OCTAVES[1]
    return max(_FAR, math.exp(-(by_new**2 + by_depth**2) / 2))


def _features(sample: Sample) -> _Features:
    return 1.0, float(sample.new), sample.new * (sample.depth + sample.new / 2)


def _least_squares(
    rows: Sequence[_Features], values: Sequence[float], weights: Sequence[float]
) -> tuple[float, float, float]:
    """The three factors, none negative: the most negative one is left out and the others are fitted again."""
    scale = [max(abs(row[k]) for row in rows) or 1.0 for k in range(3)]
    kept = [0, 1, 2]
    while kept:
        matrix = [
            [sum(w * r[i] / scale[i] * r[j] / scale[j] for r, w in zip(rows, weights, strict=True)) for j in kept]
            for i in kept
        ]
        right = [sum(w * r[i] / scale[i] * v for r, v, w in zip(rows, values, weights, strict=True)) for i in kept]
        ridge = 1e-9 * sum(matrix[k][k] for k in range(len(kept)))
        for k in range(len(kept)):
            matrix[k][k] += ridge
        found = _solve(matrix, right)
        worst = min(range(len(kept)), key=found.__getitem__)
        if found[worst] >= 0:
            made = dict(zip(kept, found, strict=True))
            return tuple(made.get(k, 0.0) / scale[k] for k in range(3))  # type: ignore[return-value]
        del kept[worst]
    return 0.0, 0.0, 0.0


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots, of a small positive definite system."""
    size = len(right)
    lines = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(size):
        pivot = max(range(k, size), key=lambda i: abs(lines[i][k]))
        lines[k], lines[pivot] = lines[pivot], lines[k]
        for i in range(k + 1, size):
            factor = lines[i][k] / lines[k][k]
            lines[i] = [a - factor * b for a, b in zip(lines[i], lines[k], strict=True)]
    found = [0.0] * size
    for k in reversed(range(size)):
        found[k] = (lines[k][size] - sum(lines[k][j] * found[j] for j in range(k + 1, size))) / lines[k][k]
    return found


def _quantile(values: Sequence[tuple[float, float]], share: float) -> float | None:
    """Of (value, weight) pairs; None of none."""
    ordered, total, seen = sorted(values), sum(weight for _, weight in values), 0.0
    for value, weight in ordered:
        seen += weight
        if seen >= share * total:
            return value
    return None


def machine() -> str:
    """The processor and how many of its cores may be used: rates of another machine say nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name or platform.processor()}, {cores} cores"
