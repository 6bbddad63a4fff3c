"""Before a launch: which rates count, what they say, and how the agent's patience compares."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.front.forecast import Forecast
from engine.front.prefill_law import Sample
from engine.front.work import Pool
from ftagent.forecast import before_launch
from ftagent.forecast.before import NO_DATA, OK, TIGHT, TOO_SLOW, verdict
from ftagent.forecast.rates import machine
from ftagent.paths import Paths, find_paths

MODEL = "m"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return find_paths({"FT_HOME": str(tmp_path / "ft")})


def keep(paths: Paths, **changes: Any) -> None:
    """Rates as the engine itself writes them: 1,000 tokens a second."""
    made = Forecast.of_model(paths.profiles, MODEL, Pool(0, 0))
    for new in (200, 900, 4_000, 12_000):
        made.add(Sample(new, 0, new / 1000))
    made.write()
    (path,) = paths.profiles.glob("rates-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def bench(paths: Paths, **changes: Any) -> None:
    row = {"name": "agent.w2.prefill", "value": 500.0, "unit": "tokens/s", "model": MODEL, **changes}
    folder = paths.state / "bench"
    folder.mkdir(parents=True)
    (folder / "agent-20260101.json").write_text(json.dumps({"date": "2026-01-01", "rows": [row]}))


def test_without_rates_there_is_no_number(paths: Paths) -> None:
    made = before_launch(paths, MODEL, 12_300, 3600.0)
    assert made.json() == {
        "prompt_tokens": 12_300, "ttft_cold_s": None, "ttft_warm_s": None, "watchdog_s": 3600.0, "verdict": NO_DATA,
        "source": "none", "samples": 0, "ttft_cold_p95_s": None,
    }  # fmt: skip
    assert "no rates are measured yet" in made.text()
    assert not paths.state.exists(), "a forecast only looks"


def test_rates_an_engine_kept(paths: Paths) -> None:
    keep(paths)
    made = before_launch(paths, MODEL, 12_000, 300.0)
    assert made.ttft_cold_s == pytest.approx(12.0, rel=0.02)
    assert made.ttft_warm_s == pytest.approx(0.512, rel=0.1)
    assert (made.source, made.samples, made.verdict) == ("measured", 4, OK)
    assert "~" not in made.text() and "waits 300 s: OK" in made.text()
    assert made.ttft_cold_p95_s is not None and made.ttft_cold_s <= made.ttft_cold_p95_s < 1.1 * made.ttft_cold_s
    assert "cold 12 s (p95 12 s, 4 samples)" in made.text()


@pytest.mark.parametrize(
    "changes", [{"model": "other"}, {"machine": "another"}, {"samples": [[1, 0, 1.0]]}, {"fit": None}, {"schema": "x"}]
)
def test_rates_that_do_not_fit_are_left_alone(paths: Paths, changes: dict[str, Any]) -> None:
    keep(paths, **changes)
    assert before_launch(paths, MODEL, 12_000, 300.0).verdict == NO_DATA


def test_both_sides_name_the_machine_alike() -> None:
    from engine.front import forecast

    assert machine() == forecast.machine()


def test_rates_of_a_benchmark_are_marked(paths: Paths) -> None:
    bench(paths)
    made = before_launch(paths, MODEL, 10_000, None)
    assert (made.ttft_cold_s, made.source, made.verdict) == (20.0, "bench", OK)
    assert "cold ~20 s (of a benchmark)" in made.text() and made.ttft_cold_p95_s is None
    keep(paths)
    assert before_launch(paths, MODEL, 10_000, None).source == "measured"


def test_a_benchmark_of_another_model_says_nothing(paths: Paths) -> None:
    bench(paths, model="other")
    assert before_launch(paths, MODEL, 10_000, None).verdict == NO_DATA


def test_an_agent_that_sends_nothing_needs_no_forecast(paths: Paths) -> None:
    keep(paths)
    assert before_launch(paths, MODEL, None, None).ttft_cold_s is None


@pytest.mark.parametrize(
    "ttft_s, limit_s, said", [(10, None, OK), (80, 100, OK), (81, 100, TIGHT), (100, 100, TIGHT), (101, 100, TOO_SLOW)]
)
def test_verdicts(ttft_s: float, limit_s: float | None, said: str) -> None:
    assert verdict(ttft_s, limit_s) == said


class Answers:
    """An engine that knows one law; `None` while it has no samples."""

    def __init__(self, rate: float | None) -> None:
        self.rate, self.asked = rate, []

    def get(self, path: str, timeout_s: float) -> dict[str, Any]:
        self.asked.append(path)
        new = int(path.partition("new=")[2].partition("&")[0])
        seconds = None if self.rate is None else new / self.rate
        high = None if seconds is None else 1.5 * seconds
        return {"ttft_p50_s": seconds, "ttft_p95_s": high, "source": "measured" if self.rate else "none", "samples": 40}


def test_a_running_engine_knows_best(paths: Paths) -> None:
    keep(paths)
    engine = Answers(2_000.0)
    made = before_launch(paths, MODEL, 12_000, 300.0, engine)  # type: ignore[arg-type]
    assert (made.ttft_cold_s, made.ttft_cold_p95_s, made.samples) == (6.0, 9.0, 40)
    assert engine.asked == ["/v1/engine/forecast?new=12000&cached=0", "/v1/engine/forecast?new=512&cached=11488"]
    made = before_launch(paths, MODEL, 12_000, 300.0, Answers(None))  # type: ignore[arg-type]
    assert made.ttft_cold_s == pytest.approx(12.0, rel=0.02)


@pytest.mark.parametrize(
    "error, checked, said", [(None, 2, "no data yet (n=2)"), (0.12, 9, "12% at most in 9 of 10 (n=9)")]
)
def test_few_forecasts_are_not_judged(error: float | None, checked: int, said: str) -> None:
    from ftagent.local_engine.report import describe

    report = dict.fromkeys(
        ("phase", "model", "url", "pid", "window_tokens", "stops_in_s", "message", "warning", "fault")
    )
    judged = {"p90_error": error, "checked": checked, "samples": checked}
    assert said in describe({**report, "state": "ready", "url": "http://127.0.0.1:1919", "forecast": judged})
