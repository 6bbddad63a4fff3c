"""Which known models suit a machine: the start-up plan's own arithmetic, in seconds, whatever the machine."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from engine.device.cpu import CpuDevice
from engine.experts.profile import Profiles
from engine.experts.split import Profile
from engine.kernels.contract import ExpertShape
from engine.memory.hardware import Hardware
from engine.memory.plan import Settings
from engine.memory.planner import plan, plan_model
from engine.weights.catalogue import config_of, known_models
from engine.weights.commands import main
from engine.weights.fit import PROMPT_TOKENS, best_of_each, offered, rank
from engine.weights.machine import DECODE_SHARE, Speeds
from engine.weights.manifest import load_manifest
from engine.weights.sizes import works_of
from engine.weights.synth import synth

GIB = 1 << 30
SPEEDS = Speeds(40e9, 400e9, Profiles(None))


def test_every_model_in_every_format_once_and_the_fitting_ones_first() -> None:
    rows = rank(Hardware(32 * GIB, 8), SPEEDS)
    assert {(row.name, row.format) for row in rows} == {
        (m.name, f) for m in known_models().values() for f in offered(m)
    }
    fits = [row.fits for row in rows]
    assert fits == sorted(fits, reverse=True)
    assert {True, False} == set(fits)
    for row in rows:
        assert row.fits == (row.total_bytes <= row.available_bytes) == (row.tokens_per_second > 0)
    best = best_of_each(rows)
    assert sorted(row.name for row in best) == sorted(known_models())
    assert best[0].command == f"ft models pull {best[0].name}:{best[0].format}"


def test_more_memory_never_takes_a_model_away() -> None:
    fitting: set[tuple[str, str]] = set()
    for gib in (8, 16, 24, 48, 96, 512, 4096):
        now = {(row.name, row.format) for row in rank(Hardware(gib * GIB, 8), SPEEDS) if row.fits}
        assert fitting <= now
        fitting = now
    assert len(fitting) == sum(len(offered(model)) for model in known_models().values())


def test_a_window_too_small_for_an_agent_is_said_and_no_first_prompt_is_priced() -> None:
    """At every amount of memory around the one with which a model just fits; and what is offered instead is planned to work."""
    small = 0
    for gib in (11.7, 12.0, 12.3, 16.4, 16.5, 20.6, 32):
        hardware = Hardware(int(gib * GIB), 8)
        rows = rank(hardware, SPEEDS)
        assert [row.serves for row in rows] == sorted((row.serves for row in rows), reverse=True)
        for row in rows:
            assert row.serves == (row.fits and row.window_tokens >= PROMPT_TOKENS) == (row.first_prompt_s > 0)
            assert ("too small for an agent" in row.why) == (row.fits and not row.serves)
            small += row.fits and not row.serves
            if "--host-memory" in row.why:
                budget = re.search(r"; slowly from disk: ft serve --model \S+ --host-memory (\d+)$", row.why)
                assert budget is not None, row.why
                work = works_of(known_models()[row.name].config, [row.format], "q8_0")[row.format]
                planned = plan(hardware, work.geometry, Settings(host_memory=int(budget[1])), row.name)
                assert planned.fits and planned.window_tokens >= PROMPT_TOKENS
    assert small >= 3


def test_sizes_are_those_of_the_model_once_it_is_written(tmp_path: Path) -> None:
    config = config_of("shape-b", layers=4, vocab=512)
    config |= {"num_experts": 8, "num_experts_per_tok": 2}
    for format in ("bf16", "mxfp4"):
        manifest = load_manifest(synth(tmp_path, format, config, format, "q8_0"))
        assert works_of(config, [format], "q8_0")[format].geometry == manifest.geometry
        hardware = Hardware(8 * GIB, 2)
        assert plan_model(manifest.directory, Settings(), hardware).total_bytes > manifest.total_bytes


def test_a_token_reads_what_it_is_routed_to() -> None:
    """The published active sizes, without the embedding table: 3.35 - 0.31 and 3.6 billion."""
    for name, active in (("qwen3-30b-a3b", 3.04e9), ("gpt-oss-20b", 3.6e9)):
        work = works_of(known_models()[name].config, ["bf16"], "bf16")["bf16"]
        assert work.token_bytes / 2 == pytest.approx(active, rel=0.03)
        assert work.token_flops == pytest.approx(work.token_bytes, rel=0.02)  # two operations, two bytes


def test_rates_come_from_the_profile_where_there_is_one(tmp_path: Path) -> None:
    (model,) = [m for m in known_models().values() if m.name == "qwen3-30b-a3b"]
    work = works_of(model.config, ["q4_0"], "q8_0")["q4_0"]
    guessed, measured = Speeds(40e9, 400e9, Profiles(tmp_path)), 39e9
    hardware = Hardware(64 * GIB, 8)
    (before,) = [row for row in rank(hardware, guessed, [model]) if row.format == "q4_0"]
    kv_bytes = 2 * work.geometry.kv_values_per_token * PROMPT_TOKENS
    assert before.tokens_per_second == pytest.approx(DECODE_SHARE * 40e9 / (work.token_bytes + kv_bytes), rel=0.01)
    Profiles(tmp_path).keep(ExpertShape(2048, 768, "q4_0"), CpuDevice(), Profile(fill=1e9, host=measured))
    (after,) = [row for row in rank(hardware, guessed, [model]) if row.format == "q4_0"]
    assert (before.rate_from, after.rate_from) == ("guess", "profile")
    assert after.tokens_per_second / before.tokens_per_second == pytest.approx(measured / 32e9, rel=0.01)


def test_the_command_says_the_arithmetic_of_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    assert main(["fit", "--memory", "16g", "--json", "--all", "--models-dir", str(tmp_path)]) == 0
    assert time.process_time() - started < 15  # seconds of work on one core, where one round of timing takes most
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "ft.models-fit/1"
    (large,) = [m for m in said["models"] if (m["name"], m["format"]) == ("qwen3-30b-a3b", "bf16")]
    assert not large["fits"] and large["weights_bytes"] > 57e9
    assert "and --memory leaves 16.0 GiB" in large["why"] and "bank 54.0 GiB" in large["why"]
    assert main(["fit", "--memory", "1g", "--models-dir", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "None of them fits here" in captured.err
    assert "short" in captured.out
