"""Reported decode rates against a stopwatch outside, of the same run, deep in a context."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine.scheduler.rate import Rate
from tests.serving import engine_server

OUTPUT = 400


def test_a_rate_is_that_of_the_time_it_took() -> None:
    now = [100.0]
    rate = Rate(lambda: now[0])
    assert rate.per_s() is None
    rate.add(1)
    assert rate.per_s() is None, "one event has no duration"
    for _ in range(20):
        now[0] += 0.1
        rate.add(2)
    assert rate.per_s() == pytest.approx(20)
    now[0] += 5
    assert rate.per_s() == pytest.approx(20), "it was as fast, although it is over"
    now[0] += 6
    assert rate.per_s() is None and rate.total == 41


@pytest.mark.parametrize("context", [12_000, pytest.param(75_000, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_case_52_the_reported_decode_rate_is_a_stopwatchs(models_dir: Path, context: int) -> None:
    """Within 10 %, by the request's record, by its last chunk and by the engine's own statistics."""
    body: dict[str, Any] = {
        "prompt": " a" * context,
        "max_tokens": OUTPUT,
        "stream": True,
        "temperature": 0,
        "logit_bias": {"2": -100},
    }
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "80k", "--anticipate", "off"]) as engine:
        times = []
        with engine.client.stream("POST", "/v1/completions", json=body, timeout=900) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {") and (json.loads(line[6:])["choices"] or [{}])[0].get("text"):
                    times.append(time.perf_counter())
        stats = engine.get("/v1/stats")["engine"]
        record = engine.get("/v1/requests?limit=1")["requests"][0]
    assert record["output_tokens"] == OUTPUT and record["prompt_tokens"] >= context
    watched = (record["output_tokens"] - 1) / (times[-1] - times[0])
    reported = (record["output_tokens"] - 1) / record["decode_s"]
    assert reported == pytest.approx(watched, rel=0.1), (reported, watched)
    if times[-1] - times[0] < 8:  # all of it within what statistics look back to
        assert stats["tokens_per_s"]["decode"] == pytest.approx(watched, rel=0.1)
