"""Forecasts of the first token: a machine whose law is known, what is kept, and the route of a real engine."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.front.forecast import LEAST, SAMPLES, Forecast
from engine.front.prefill_law import Sample
from engine.front.recorder import Recorder
from engine.front.records import Records, RequestRecord
from engine.front.work import Floor, Pool
from engine.weights.manifest import load_manifest
from tests.serving import engine_server

MODEL = "m"


def law(new: int, depth: int) -> float:
    """A machine of 700 tokens/s that pays 40 ms a prefill and slows down with depth."""
    return 0.04 + new / 700 + new * (depth + new / 2) * 4e-8


def taught(count: int, noise: float = 0.0, seed: int = 3) -> Forecast:
    made, chance = Forecast(None, MODEL), random.Random(seed)
    for _ in range(count):
        new, depth = int(10 ** chance.uniform(1, 4.2)), chance.randrange(0, 60_000)
        made.add(Sample(new, depth, law(new, depth) * chance.uniform(1 - noise, 1 + noise)))
    return made


def test_nothing_is_said_before_there_are_samples() -> None:
    made = taught(LEAST - 1)
    assert made.predict(100, 0).json() == {
        "queue_s": None, "restore_s": None, "prefill_s": None, "ttft_p50_s": None, "ttft_p95_s": None,
        "samples": LEAST - 1, "source": "none",
    }  # fmt: skip
    made.add(Sample(50, 0, law(50, 0)))
    assert made.predict(100, 0).source == "measured"


@pytest.mark.parametrize("new, depth", [(20, 30_000), (300, 0), (4_000, 10_000), (17_000, 0)])
def test_the_law_is_found(new: int, depth: int) -> None:
    assert taught(120).predict(new, depth).ttft_p50_s == pytest.approx(law(new, depth), rel=0.03)


def test_noise_moves_the_p95_and_not_the_p50() -> None:
    made = taught(SAMPLES, noise=0.15).predict(2_000, 5_000)
    assert made.ttft_p50_s == pytest.approx(law(2_000, 5_000), rel=0.1)
    assert 1.05 < made.ttft_p95_s / made.ttft_p50_s < 1.3


def test_another_regime_of_short_prompts_does_not_spoil_long_ones() -> None:
    """Few tokens may take a fixed time whatever they are: likeness keeps the two apart."""
    made = Forecast(None, MODEL)
    for i in range(60):
        made.add(Sample(10 + i % 7, 1_000, 0.5))
        made.add(Sample(3_000 + 10 * i, 1_000, 5.0))
    assert made.predict(12, 1_000).ttft_p50_s == pytest.approx(0.5, rel=0.1)
    assert made.predict(3_200, 1_000).ttft_p50_s == pytest.approx(5.0, rel=0.1)


def test_a_machine_that_has_slowed_down_is_followed() -> None:
    made = taught(100)
    for i in range(60):
        made.add(Sample(1_000 + i, 0, 2 * law(1_000 + i, 0)))
    assert made.predict(1_000, 0).ttft_p50_s == pytest.approx(2 * law(1_000, 0), rel=0.1)


def test_who_is_ahead_delays_by_at_most_ones_own_work() -> None:
    made = taught(100)
    alone = made.predict(1_000, 0)
    behind_long = made.predict(1_000, 0, ahead=[(30_000, 0)])
    behind_short = made.predict(1_000, 0, ahead=[(50, 0)])
    assert behind_long.queue_s == pytest.approx(alone.prefill_s, rel=0.01)
    assert behind_short.queue_s == pytest.approx(law(50, 0), rel=0.1)


def test_prefixes_from_disk_take_time_by_their_measured_rate() -> None:
    made = taught(50)
    made.observe(record(cached=20_000, tier="disk", restore_s=2.0, seconds=law(100, 20_000)))
    assert made.predict(100, 40_000, disk=True).restore_s == pytest.approx(4.0, rel=0.01)
    assert made.predict(100, 40_000).restore_s == 0


def test_no_chunk_is_faster_than_its_experts_come_in() -> None:
    stats = {"experts": {"slots": 64, "rates": {"fill_bytes_per_s": 1e9}}, "settings": {"chunk_tokens": 512}}
    floor = Floor.of(stats, Pool(experts=256, bytes=4_000_000_000))
    assert floor == Floor(512, 3.0)
    assert taught(50).predict(600, 0, floor=floor).prefill_s == 6.0
    assert Floor.of({"experts": {"slots": 256}, "settings": {"chunk_tokens": 512}}, Pool(256, 1)) is None
    assert Floor.of(None, Pool(0, 0)) is None


def record(cached: int = 0, new: int = 100, seconds: float = 1.0, **fields: Any) -> RequestRecord:
    made = RequestRecord(id="r", session=None, api="chat", model=MODEL, stream=True)
    made.prompt_tokens, made.cached_tokens, made.queue_s, made.render_s = cached + new, cached, 0.5, 0.0
    restore_s = fields.get("restore_s") or 0.0
    made.first_token_s = 0.5 + restore_s + seconds
    made.ttft_s = made.first_token_s
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_waiting_and_restoring_are_no_prefill() -> None:
    made = Forecast(None, MODEL)
    for _ in range(4):
        made.observe(record(cached=5_000, new=200, seconds=0.25, restore_s=3.0, tier="disk"))
    assert made.predict(200, 5_000).prefill_s == pytest.approx(0.25, rel=0.01)


def test_a_request_that_shared_the_machine_teaches_only_when_no_other_did() -> None:
    made = Forecast(None, MODEL)
    for _ in range(LEAST):
        made.observe(record(seconds=9.0), alone=False)
    assert made.predict(100, 0).prefill_s == pytest.approx(9.0, rel=0.01)
    for _ in range(LEAST):
        made.observe(record(seconds=1.0))
    assert made.predict(100, 0).prefill_s == pytest.approx(1.0, rel=0.01)


def test_errors_are_judged_against_what_happened() -> None:
    made = Forecast(None, MODEL)
    assert made.error() == {"p90_error": None, "checked": 0, "samples": 0}
    for checked, off in enumerate((0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.9)):
        assert (made.error()["p90_error"] is None) == (checked < LEAST)
        made.observe(record(seconds=0.5, predicted_ttft_s=1.0 + off))
    assert made.error() == {"p90_error": 0.2, "checked": 10, "samples": 10}
    made.observe(record(seconds=0.5, ttft_s=None, predicted_ttft_s=1.0))  # it hung up before the first token
    assert made.error()["checked"] == 10


def test_rates_outlive_the_engine(tmp_path: Path) -> None:
    first = Forecast.of_model(tmp_path / "p", MODEL, Pool(0, 0))
    for sample in taught(80)._samples:
        first.add(sample)
    first.write()
    again = Forecast.of_model(tmp_path / "p", MODEL, Pool(0, 0))
    assert again.predict(900, 100).ttft_p50_s == pytest.approx(first.predict(900, 100).ttft_p50_s, rel=0.01)
    assert Forecast.of_model(tmp_path / "p", "other", Pool(0, 0)).predict(900, 100).source == "none"


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "ft.rates/1", "model": "m", "samples": [["x"]]}'])
def test_damaged_rates_are_no_rates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    assert Forecast(path, MODEL).predict(1, 1).source == "none"


def test_nothing_new_is_nothing_written(tmp_path: Path) -> None:
    Forecast(tmp_path / "rates.json", MODEL).write()
    assert not list(tmp_path.iterdir())


def test_those_that_still_prefill() -> None:
    records = Records()
    waiting, running, decoding, over = (record(cached=0, new=1_000, ttft_s=None) for _ in range(4))
    running.cached_tokens, running.prefill_done = 100, 600
    decoding.ttft_s, over.end = 0.3, "stop"
    for made in (waiting, running, decoding, over):
        records.add(made)
    assert records.prefilling() == [(1_000, 0), (400, 600)]
    assert records.prefilling(waiting) == [(400, 600)]


def test_tokens_are_recorded_only_where_a_folder_is_named(models_dir: Path, tmp_path: Path) -> None:
    body = {"model": "m", "prompt": "a b c", "max_tokens": 2}
    with engine_server("tiny-hybrid", models_dir, flags=("--record-dir", str(tmp_path / "kept"))) as engine:
        assert engine.client.post("/v1/completions", json=body).status_code == 200
        (known,) = engine.get("/v1/requests")["requests"]
    file = tmp_path / "kept" / "tokens.jsonl"
    (line,) = [json.loads(text) for text in file.read_text().splitlines()]
    assert line["id"] == known["id"] and len(line["prompt"]) == known["prompt_tokens"] and len(line["output"]) == 2
    assert file.stat().st_mode & 0o777 == 0o600
    Recorder(None).add(record(), [1], [2])
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_real_engine_predicts_measures_and_keeps(models_dir: Path, tmp_path: Path) -> None:
    flags = ("--profiles-dir", str(tmp_path))
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        assert engine.get("/v1/engine/forecast?new=100")["source"] == "none"
        for i in range(8):
            text = " ".join(f"word{i}x{j}" for j in range(150 + 40 * i))
            body = {"model": "m", "prompt": text, "max_tokens": 2}
            assert engine.client.post("/v1/completions", json=body).status_code == 200
        told = engine.get("/v1/engine/forecast?new=1000&cached=0")
        assert told["source"] == "measured" and told["samples"] >= 8
        assert 0 < told["ttft_p50_s"] <= told["ttft_p95_s"] < 60
        requests = engine.get("/v1/requests")["requests"]
        assert [r["predicted_ttft_s"] is None for r in requests] == [True] * LEAST + [False] * 5
        quality = engine.get("/v1/stats")["forecast"]
        assert quality["checked"] == 5 and quality["p90_error"] is not None
    (kept,) = tmp_path.glob("rates-*.json")
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        assert engine.get("/v1/engine/forecast?new=1000")["source"] == "measured", kept.read_text()


def test_what_a_model_multiplies_for_depth(models_dir: Path, tmp_path: Path) -> None:
    """By hand for the hybrid: 2 of its 8 layers attend, with 4 heads of 32; 64 wide, 2 of 8 experts 32 wide."""
    manifest = load_manifest(models_dir / "tiny-hybrid")
    layers = [e.shape for n, e in manifest.dense.items() if n.startswith("layers.") and len(e.shape) == 2]
    matrices = sum(rows * columns for rows, columns in layers)
    made = Pool.of(manifest)
    assert made.pair_share == pytest.approx(2 * 2 * 4 * 32 / (matrices + 8 * 2 * 3 * 64 * 32))
    assert (made.experts, made.bytes) == (64, sum(bank.bytes for bank in manifest.banks))
    (tmp_path / "config.json").write_text("{}")
    assert Pool.of(replace(manifest, directory=tmp_path)).pair_share == 0.0
