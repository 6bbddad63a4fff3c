"""A model in other formats: what is kept stays bit for bit, what is rounded is rounded as the converter rounds the same values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import kernels
from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import FORMATS, Packed
from engine.weights.checkpoint import open_checkpoint
from engine.weights.commands import main
from engine.weights.convert import convert
from engine.weights.ftw import read_weights
from engine.weights.manifest import load_manifest, verify
from engine.weights.refit import refit
from tests.engine.weights.test_weights_pull import QWEN3, separate, write_repo


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repo(tmp_path_factory.mktemp("refit") / "hf", QWEN3, separate(QWEN3), shards=2)


def converted(checkpoint: Path, models_dir: Path, name: str, format: str, dense_format: str) -> Path:
    source, facts = open_checkpoint(checkpoint, "bf16")
    return convert(source, facts, models_dir, name, format, dense_format)


def weights_of(directory: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in directory.iterdir() if f.suffix == ".bin"}


@pytest.mark.parametrize("format", FORMATS)
def test_from_exact_values_it_is_the_converter(checkpoint: Path, tmp_path: Path, format: str) -> None:
    exact = load_manifest(converted(checkpoint, tmp_path, "exact", "bf16", "bf16"))
    made = refit(exact, tmp_path, "made", format, "q8_0")
    straight = converted(checkpoint, tmp_path, "straight", format, "q8_0")
    verify(made)
    assert weights_of(made) == weights_of(straight)
    ours, theirs = (json.loads((d / "ftw.json").read_text()) for d in (made, straight))
    assert {**ours, "name": ""} == {**theirs, "name": ""}


def test_keep_is_a_copy_bit_for_bit(checkpoint: Path, tmp_path: Path) -> None:
    first = converted(checkpoint, tmp_path, "first", "q4_0", "q8_0")
    copy = refit(load_manifest(first), tmp_path, "copy", "keep", "keep")
    assert weights_of(copy) == weights_of(first)


def test_experts_with_biases_keep_them(tmp_path: Path) -> None:
    from engine.weights.catalogue import config_of
    from engine.weights.synth import synth

    config = config_of("gpt-oss-20b", layers=1, vocab=300)
    config |= {"hidden_size": 64, "intermediate_size": 32, "num_local_experts": 3, "num_experts_per_tok": 2}
    first = load_manifest(synth(tmp_path, "first", config, "mxfp4", "bf16"))
    second = load_manifest(refit(first, tmp_path, "second", "f32", "keep"))
    assert second.banks[0].bias and second.banks[0].activation == "swiglu_oai"
    old, new = (read_weights(manifest).banks[0] for manifest in (first, second))
    ops = kernels.get("reference")
    for before, after in zip(old, new, strict=True):
        exact = ops.unpack(Packed(before[: 64 * 2 * 17].clone(), "mxfp4", 64, 64))
        assert ops.unpack(Packed(after[: 64 * 64 * 4].clone(), "f32", 64, 64)).equal(exact)
    from engine.weights.ftw import expert_shape

    shapes = [expert_shape(manifest, manifest.banks[0]) for manifest in (first, second)]
    biases = [bank[:, s.bias_offset : s.bias_offset + 4 * 128] for bank, s in zip((old, new), shapes, strict=True)]
    assert biases[0].equal(biases[1])
    assert biases[0].any()


def test_a_corrupt_source_is_named_and_gives_nothing(checkpoint: Path, tmp_path: Path) -> None:
    first = converted(checkpoint, tmp_path, "first", "q8_0", "q8_0")
    file = first / "experts-001.bin"
    data = bytearray(file.read_bytes())
    data[-1 - 4096] ^= 1
    file.write_bytes(data)
    with pytest.raises(WeightsError, match=r"experts-001.bin is corrupt in expert \d of layer 1"):
        refit(load_manifest(first), tmp_path, "second", "bf16", "keep")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["first"]
    with pytest.raises(Unsupported):
        refit(load_manifest(first), tmp_path, "second", "q3", "keep")


def test_the_command(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--models-dir", str(tmp_path / "models")]
    assert main(["convert", str(checkpoint), "kept", *models]) == 0
    assert "Experts are kept as bf16." in capsys.readouterr().err
    assert main(["convert", "kept", "small", "--format", "q4_0", "--json", *models]) == 0
    assert json.loads(capsys.readouterr().out)["formats"] == ["q4_0"]
    elsewhere = tmp_path / "elsewhere" / "copy"
    assert main(["convert", "small", str(elsewhere), *models]) == 0
    assert capsys.readouterr().out == f"{elsewhere}\n"
    assert load_manifest(elsewhere).name == "copy"
    assert main(["convert", "small", "small", "--force", *models]) == 2
    assert "cannot be written over itself" in capsys.readouterr().err
