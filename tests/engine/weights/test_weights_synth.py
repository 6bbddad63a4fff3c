"""Random weights at real shapes: the layout of a converted model, a forward that stays finite, and a model that can be served."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine import kernels
from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import FORMATS, Packed, packed_bytes
from engine.prompt.tokenizer import Tokenizer
from engine.weights import synth as synthetic
from engine.weights.catalogue import config_of, known_models
from engine.weights.commands import main
from engine.weights.convert import convert, weight_map_of
from engine.weights.ftw import read_weights
from engine.weights.manifest import load_manifest
from engine.weights.seeded import SeededHybrid
from engine.weights.shapes import dense_shapes
from engine.weights.synth import plain_tokenizer, synth


def small_config(like: str) -> dict[str, Any]:
    """A known model's configuration with few and narrow layers."""
    config = config_of(like, layers=4, vocab=300)
    experts = "num_experts" if "num_experts" in config else "num_local_experts"
    width = "moe_intermediate_size" if "moe_intermediate_size" in config else "intermediate_size"
    return {**config, "hidden_size": 64, experts: 4, "num_experts_per_tok": 2, width: 32}


def offered(config: dict[str, Any]) -> bool:
    try:
        weight_map_of(config)
    except Unsupported:
        return False
    return True


ARCHITECTURES = [
    like for like in ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3.6-35b-a3b", "gpt-oss-20b") if offered(config_of(like))
]


@pytest.mark.parametrize("like", ARCHITECTURES)
def test_the_shapes_of_each_architecture_are_what_its_map_reads(like: str) -> None:
    config = small_config(like)
    weight_map = weight_map_of(config)
    wanted = {name for tensor in weight_map.dense.values() for name in tensor.sources}
    assert wanted == set(dense_shapes(config))


@pytest.mark.parametrize("format", FORMATS)
def test_layout_and_scale_are_those_of_a_converted_model(tmp_path: Path, format: str) -> None:
    config = small_config("qwen3.6-35b-a3b")
    manifest = load_manifest(synth(tmp_path, "made", config, format, "bf16"))
    weights = read_weights(manifest)
    assert manifest.quality == "synthetic"
    assert {bank.format for bank in manifest.banks} == {format}
    ops = kernels.get("reference")
    experts = [ops.unpack(Packed(block[: packed_bytes(64, 64, format)], format, 64, 64)) for block in weights.banks[3]]
    assert not torch.equal(experts[0], experts[1])
    for values in (*experts, ops.unpack(weights.dense["embedding"])):
        assert values.std().item() == pytest.approx(64**-0.5, rel=0.2)
    norm = weights.dense["layers.3.attention.q_norm"]
    assert isinstance(norm, torch.Tensor)
    assert norm.mean().item() == pytest.approx(1.0, abs=0.1)


def test_it_is_the_layout_that_the_converter_writes(tmp_path: Path) -> None:
    config = {**small_config("qwen3.6-35b-a3b"), "shared_expert_intermediate_size": 32}
    made = load_manifest(synth(tmp_path, "made", config, "f32", "bf16"))
    facts = synthetic._facts(config, "")
    converted = load_manifest(
        convert(SeededHybrid({**config, "layer_types": KINDS}), facts, tmp_path, "conv", "f32", "bf16")
    )
    assert made.geometry == converted.geometry
    assert made.dense == converted.dense
    assert [(b.bytes, b.stride, b.experts) for b in made.banks] == [
        (b.bytes, b.stride, b.experts) for b in converted.banks
    ]


KINDS = ["linear_attention"] * 3 + ["full_attention"]


@pytest.mark.parametrize("like", ARCHITECTURES)
def test_a_forward_stays_finite(tmp_path: Path, like: str) -> None:
    from engine.memory.plan import Settings
    from engine.memory.planner import plan_model
    from engine.runner.load import load

    directory = synth(tmp_path, "made", small_config(like), "bf16", "bf16")
    load(directory, plan_model(directory, Settings(kv_tokens=1024, chunk_tokens=64)), threads=1)  # raises otherwise


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        synth(tmp_path, name, small_config("qwen3.6-35b-a3b"), "q8_0", "bf16")
    assert load_manifest(tmp_path / "one").dense_crc32 == load_manifest(tmp_path / "two").dense_crc32


def test_its_tokenizer_spells_any_text_and_says_only_words(tmp_path: Path) -> None:
    tokenizer = Tokenizer(plain_tokenizer(1000).to_str())
    assert tokenizer.size == 1000
    text = 'fn main() { println!("é 你好"); }\n'
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([256, 257, 990]) == " a b gcb"
    assert tokenizer.control["<|im_end|>"] == 993
    with pytest.raises(Unsupported, match="too small"):
        plain_tokenizer(264)


def test_known_models_have_their_published_sizes() -> None:
    total = {"qwen3-30b-a3b": 30.5e9, "qwen3.6-35b-a3b": 34.7e9, "gpt-oss-20b": 20.9e9, "gpt-oss-120b": 116.8e9}
    total |= {
        "qwen3-235b-a22b": 235.1e9,
        "mixtral-8x7b": 46.7e9,
        "qwen3.5-122b-a10b": 122e9,
        "qwen3.5-397b-a17b": 397e9,
    }
    for name, parameters in total.items():
        config = known_models()[name].config
        dense = sum(int(torch.tensor(shape).prod()) for shape in dense_shapes(config).values())
        experts = config.get("num_experts") or config["num_local_experts"]
        width = config.get("moe_intermediate_size") or config["intermediate_size"]
        routed = config["num_hidden_layers"] * experts * 3 * config["hidden_size"] * width
        assert dense + routed == pytest.approx(parameters, rel=0.015), name


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "synth",
        "--like",
        "qwen3.6-35b-a3b",
        "--arch",
        "qwen3_5_moe",
        "--name",
        "x",
        "--models-dir",
        str(tmp_path),
    ]
    assert main([*command, "--arch", "mixtral"]) == 2
    assert "qwen3.6-35b-a3b is of architecture qwen3_5_moe, not mixtral" in capsys.readouterr().err
    assert main([*command, "--like", "gpt-9"]) == 3
    assert all(name in capsys.readouterr().err for name in ["shape-a"])
    assert main([*command, "--layers", "0"]) == 2
    assert not (tmp_path / "x").exists()


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(WeightsError, match=r"needs 0\.0 GB and its disk has 0\.0 GB free"):
        synth(tmp_path / "models", "x", small_config("qwen3.6-35b-a3b"), "bf16", "bf16")
    assert not (tmp_path / "models").exists()
