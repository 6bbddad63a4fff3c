"""When will the first token come? From what the newest requests took, part by part.

Until a client sees something there are: the way from text to tokens, prefills that are ahead, a prefix that is read from disk, the
prefill (prefill_law.py), and as many decode steps as a reply has tokens that show nothing, such as the start of a tag.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from engine.front.prefill_law import PACE_AGE, Sample, fit, quantile
from engine.front.records import RequestRecord
from engine.front.work import Floor, Pool
from engine.memory.hardware import cores_text as machine

SCHEMA = "ft.rates/2"
SAMPLES = 96  # newest ones that count
STEPS = 32  # of decode steps
LEAST = 3  # fewer say nothing
LEAST_OUTPUT = 4  # tokens of a reply that tells how long a decode step takes
MEASURED, NONE = "measured", "none"
_LOG = logging.getLogger("engine.front")


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


_NOTHING = Pool(0, 0)


class Forecast:
    """Of one model on this machine. `path` None: rates are not kept; reads what was kept there before."""

    def __init__(self, path: Path | None, model: str, pool: Pool = _NOTHING) -> None:
        self.model = model
        self.pool = pool
        self._path = path
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._steps: deque[Sample] = deque(maxlen=STEPS)  # decode steps of single sequences
        # whether beside the agent's own turns, and steps from the first token to the first thing a client can see
        self._hidden: deque[tuple[bool, float]] = deque(maxlen=STEPS)
        self._restores: deque[float] = deque(maxlen=STEPS)  # tokens per second, from disk
        self._renders: deque[float] = deque(maxlen=STEPS)  # seconds per prompt token
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
        """A request is over: learn from it, and judge what was predicted for it. Of a prefill that was not `alone` what its own part of
        the steps took counts, where the record tells."""
        if (
            record.ttft_s is None
            or record.first_token_s is None
            or record.cached_tokens is None
            or not record.prompt_tokens
        ):
            return
        new = record.prompt_tokens - record.cached_tokens
        restore_s, render_s = record.restore_s or 0.0, record.render_s or 0.0
        seconds = record.first_token_s - (record.queue_s or 0.0) - restore_s
        if record.tier == "disk" and restore_s > 0:
            self._restores.append(record.cached_tokens / restore_s)
        self._renders.append(render_s / record.prompt_tokens)
        output, hidden_s = record.output_tokens or 0, max(0.0, record.ttft_s - render_s - record.first_token_s)
        if output >= LEAST_OUTPUT and record.decode_s:
            step_s = record.decode_s / (output - 1)
            self._steps.append(Sample(1, record.prompt_tokens + output // 2, step_s))
            self._hidden.append((bool(record.side), min(hidden_s / step_s, output)))
        if not alone and record.computed_s:
            seconds, alone = record.computed_s, True
        if new > 0 and seconds > 0:
            self.add(Sample(new, record.cached_tokens, seconds, alone))
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
        side: bool = False,
    ) -> Prediction:
        """For a prompt of `new` tokens behind `cached` ones, which come from `disk` or lie in memory.

        `ahead` are the prefills that run or wait, as (tokens left, depth). They share the machine with this one, so that it waits
        for as much of each as it has work of its own. `render_s` replaces the usual time before that, from text to tokens, where it is known.
        `side`: beside the agent's own turns.
        """
        samples = self._usable()
        if len(samples) < LEAST:
            return Prediction(None, None, None, None, None, len(samples), NONE)
        law = fit(samples, self._steps, new, cached, self.pool.pair_share, self.pool.few_steps)
        least = floor.seconds(new) if floor else 0.0
        middle, high = (max(law.seconds(new, cached) * factor, least) for factor in (law.p50, law.p95))
        queue_s = sum(min(law.seconds(*other) * law.p50, middle) for other in ahead)
        restore_s = 0.0
        if disk and cached:
            rate = _middle(self._restores)
            restore_s = cached / rate if rate else 0.0
        if render_s is None:
            render_s = (new + cached) * _middle(self._renders)
        around = render_s + queue_s + restore_s + self._hidden_s(new + cached, side)
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
        """How far predictions were off: the p90 of |predicted - actual| / actual, None while too few were checked."""
        made = quantile([(e, 1.0) for e in self._errors], 0.9) if len(self._errors) >= LEAST else None
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
        whole = fit(samples, self._steps, pair_share=self.pool.pair_share, few_steps=self.pool.few_steps)
        data = {
            "schema": SCHEMA,
            "model": self.model,
            "machine": machine(),
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "fit": {
                "fixed_s": (whole.fixed + whole.spread) * whole.p50
                + self._hidden_s(max(s.depth for s in samples), False),
                "token_s": whole.token * whole.p50,
                "depth_s": whole.pair * whole.p50,
                "read_s": whole.read * whole.p50,
                "p95": whole.p95 / whole.p50,
            },
            "samples": [[s.new, s.depth, round(s.seconds, 5)] for s in samples],
            "steps": [[s.depth, round(s.seconds, 6)] for s in self._steps],
            "hidden": [[side, round(steps, 2)] for side, steps in self._hidden],
            "renders": [round(seconds, 9) for seconds in self._renders],
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

    def _hidden_s(self, depth: int, side: bool) -> float:
        """From the first token to the first thing a client can see."""
        if not self._steps:
            return 0.0
        law = fit(self._steps, (), 1, depth)
        alike = [steps for beside, steps in self._hidden if beside == side] or [steps for _, steps in self._hidden]
        return _middle(alike) * law.seconds(1, depth) * law.p50

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            document = json.loads(self._path.read_text())
            if document["schema"] == SCHEMA and document["model"] == self.model:
                for new, depth, seconds in document["samples"][-SAMPLES:]:
                    self._samples.append(Sample(int(new), int(depth), float(seconds)))
                for depth, seconds in document["steps"][-STEPS:]:
                    self._steps.append(Sample(1, int(depth), float(seconds)))
                self._hidden.extend((bool(side), float(steps)) for side, steps in document["hidden"][-STEPS:])
                self._renders.extend(float(seconds) for seconds in document["renders"][-STEPS:])
        except (OSError, ValueError, TypeError, KeyError):
            for kept in (self._samples, self._steps, self._hidden, self._renders):
                kept.clear()


def _middle(values: Sequence[float]) -> float:
    """The median, the newest counting most; 0 of none."""
    return quantile([(value, PACE_AGE ** (len(values) - 1 - i)) for i, value in enumerate(values)], 0.5) or 0.0
