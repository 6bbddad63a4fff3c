"""Weights that do not fit and weights that are damaged, as somebody meets them who starts the engine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import load
from engine.weights import synth
from engine.weights.catalogue import config_of
from engine.weights.convert import packing_ops, weight_map_of, write_facts
from engine.weights.manifest import load_manifest
from engine.weights.scatter import ScatterWriter, Sums
from engine.weights.shapes import dense_shapes
from engine.weights.sizes import built_shape, expert_shape_of

GIB = 1 << 30


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 61 GB, nearly all of it holes: as large as any other to whoever asks for its size."""
    directory = tmp_path_factory.mktemp("models") / "large"
    directory.mkdir()
    config = config_of("qwen3-30b-a3b")
    weight_map, shapes = weight_map_of(config), dense_shapes(config)
    entries = [
        (name, built_shape(tensor, shapes), (tensor.format or "bf16") if tensor.packed else "")
        for name, tensor in weight_map.dense.items()
    ]
    layers, experts = [layer.layer for layer in weight_map.experts], weight_map.geometry.experts
    sums = Sums(dict.fromkeys(weight_map.dense, 0), {layer: dict.fromkeys(range(experts), 0) for layer in layers})
    shape = expert_shape_of(weight_map, config, "bf16")
    writer = ScatterWriter(directory, packing_ops(), entries, layers, experts, shape, sums)
    writer.open()
    write_facts(writer, weight_map, synth._facts(config, ""), "large")
    writer.close()
    assert load_manifest(directory).total_bytes > 60e9
    return directory


def in_16_gib(*command: str) -> tuple[subprocess.CompletedProcess[str], float, int]:
    """(the finished engine command, its processor seconds, its peak memory in bytes)."""
    reports = """
import json, resource, runpy, sys
sys.argv = ["engine", *sys.argv[1:]]
try:
    runpy.run_module("engine", run_name="__main__")
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps([used.ru_utime + used.ru_stime, peak * 1024]), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", reports, *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (16 * GIB, 16 * GIB)),
    )
    seconds, peak = json.loads(done.stderr.strip().splitlines()[-1])
    return done, seconds, peak


def test_sixty_gigabytes_on_a_machine_with_sixteen_are_refused_at_once_with_the_arithmetic(
    large: Path, tmp_path: Path
) -> None:
    planned, seconds, peak = in_16_gib("plan", "--model", "large", "--models-dir", str(large.parent), "--json")
    made = json.loads(planned.stdout)
    assert planned.returncode == 5
    assert made["total_bytes"] == sum(made["tenants"].values()) > 60e9
    assert made["shortfall_bytes"] == made["total_bytes"] - made["available_bytes"] > 42e9
    assert len(made["ways_out"]) == 3
    assert seconds < 60 and peak < GIB // 4
    runtime = tmp_path / "runtime"
    arguments = ["--model", "large", "--models-dir", str(large.parent), "--runtime-dir", str(runtime), "--port", "0"]
    refused, seconds, peak = in_16_gib("serve", *arguments)
    assert refused.returncode == 5
    assert "large needs 5" in refused.stderr and "short" in refused.stderr
    assert seconds < 60 and peak < GIB // 4
    assert not (runtime / "engine.json").exists()


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        ("flip experts-003.bin", "experts-003.bin is corrupt in expert 0 of layer 3"),
        ("flip dense.bin", "dense.bin is corrupt: its checksum is"),
        ("cut experts-003.bin", "experts-003.bin is truncated"),
        ("cut dense.bin", "dense.bin is truncated"),
        ("remove experts-003.bin", "experts-003.bin is missing"),
        ("remove tokenizer.json", "tokenizer.json is missing"),
        ("remove ftw.json", "ftw.json is missing"),
    ],
)
def test_damage_is_named_and_never_served(models_dir: Path, tmp_path: Path, damage: str, fact: str) -> None:
    directory = tmp_path / "tiny-hybrid"
    shutil.copytree(models_dir / "tiny-hybrid", directory)
    made = plan_model(directory, Settings(kv_tokens=1024))
    what, file = damage.split()
    path = directory / file
    if what == "flip":
        data = bytearray(path.read_bytes())
        data[1000] ^= 4
        path.write_bytes(data)
    elif what == "cut":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.unlink()
    with pytest.raises(WeightsError, match=fact) as raised:
        load(directory, made, threads=1)
    assert "ft models tiny-hybrid --force" in raised.value.hint
