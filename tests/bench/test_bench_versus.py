"""The comparison with llama.cpp: its models, its rounds, and a whole run of ours without a peer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def bench_folder() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "bench"))
    yield
    sys.path.remove(str(ROOT / "bench"))


class Recorder:
    """A side that answers nothing and tells what is asked of it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def __enter__(self) -> "Recorder":
        self.log.append(f"open {self.name}")
        return self

    def __exit__(self, *error: object) -> None:
        self.log.append(f"close {self.name}")


@pytest.mark.parametrize("together", [True, False])
def test_rounds_alternate_and_the_first_is_dropped(together: bool) -> None:
    import versus

    log: list[str] = []
    opened = {name: lambda name=name: Recorder(name, log) for name in ("ours", "theirs")}

    def measure(side: Recorder) -> dict[str, float]:
        log.append(side.name)
        return {side.name: float(len(log))}

    samples = versus.alternate(opened, {name: measure for name in opened}, 3, together)
    assert len(samples["ours"]) == len(samples["theirs"]) == 3
    if together:
        assert log == ["open ours", "open theirs", *["ours", "theirs"] * 4, "close theirs", "close ours"]
    else:
        turn = [step for name in opened for step in (f"open {name}", name, name, f"close {name}")]
        assert log == turn * versus.TURNS  # never two at once


@pytest.mark.parametrize("shape", ["tiny-a", "tiny-b"])
@pytest.mark.parametrize("format", ["bf16", "q4_0", "mxfp4", "nvfp4"])
def test_random_models_are_whole_and_of_the_stated_size(shape: str, format: str, tmp_path: Path) -> None:
    import peer_models

    path = tmp_path / "model.gguf"
    peer_models.write(path, peer_models.SHAPES[shape], format)
    reader = gguf.GGUFReader(path)
    made = {tensor.name: tensor for tensor in peer_models.tensors(peer_models.SHAPES[shape], format)}
    assert {tensor.name for tensor in reader.tensors} == set(made)
    for tensor in reader.tensors:
        expected = made[tensor.name]
        assert tuple(reversed(tensor.shape)) == expected.shape and tensor.tensor_type.name.lower() == expected.format
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(values).all()
        if expected.value is None:
            assert 0.3 * expected.std < float(np.std(values)) < 4 * expected.std


def test_both_engines_get_the_same_file(tmp_path: Path) -> None:
    import models

    shape, imports = models.SHAPES["tiny-a"], []
    for kept in ("neither", "both", "directory"):
        if kept == "directory":
            (tmp_path / "tiny-a-mxfp4.gguf").unlink()
        with models.pair("tiny-a", shape, "mxfp4", tmp_path, keep=True) as made:
            imports.append((made.directory / "ftw.json").stat().st_ino)
    assert imports[0] == imports[1]
    assert (made.directory / "ftw.json").stat().st_mtime_ns > made.gguf.stat().st_mtime_ns


def test_bytes_of_a_token_are_those_of_its_experts() -> None:
    import peer_models

    shape = peer_models.SHAPES["a"]
    expert = 3 * shape.hidden * shape.width * shape.top_k * shape.layers
    assert peer_models.token_bytes(shape, "mxfp4") - peer_models.token_bytes(shape, "q4_0") == pytest.approx(
        expert * (17 - 18) / 32, abs=2
    )


def run(name: str, tmp_path: Path, *arguments: str) -> list[dict]:
    environment = {k: v for k, v in os.environ.items() if k != "FT_BENCH_PEER"}
    command = [sys.executable, "-P", "-m", "engine", "bench", name, "--json", "--work", str(tmp_path / "work")]
    command += ["--results", str(tmp_path / "kept"), "--peer-python", "none", *arguments]
    made = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert made.returncode == 0, made.stderr
    rows: list[dict] = json.loads(made.stdout)
    kept = json.loads(next((tmp_path / "kept").glob(f"{name}-*.json")).read_text())
    assert kept["rows"] == rows and kept["machine"]["cpu"]
    return rows


def test_decode_without_a_peer_measures_ours_and_the_bound(tmp_path: Path) -> None:
    rows = run("decode", tmp_path, "--quick", "--shapes", "tiny-b", "--formats", "q4_0", "--keep-models")
    speed, bound = rows
    assert (speed["name"], bound["name"]) == ("decode.tiny-b.q4_0", "decode.tiny-b.q4_0.bound")
    assert speed["value"] == bound["value"] > 0 and speed["ratio"] is None and "make peer" in speed["note"]
    assert bound["ratio"] == pytest.approx(bound["value"] / bound["baseline"], abs=6e-4) and bound["samples"] == 3
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["tiny-b-q4_0", "tiny-b-q4_0.gguf"]
    (prefill,) = run("prefill", tmp_path, "--quick", "--shapes", "tiny-b", "--formats", "q4_0", "--lengths", "96")
    assert prefill["name"] == "prefill96.tiny-b.q4_0" and prefill["value"] > 0
    assert list((tmp_path / "work").iterdir()) == []  # and cleans up
