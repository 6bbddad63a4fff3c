"""Hugging Face checkpoints as safetensors' own writer and transformers leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import WeightsError
from engine.weights.safetensors import SafetensorsSource


def _tensors() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    return {
        "model.language_model.norm.weight": torch.randn(7, generator=random),
        "model.language_model.layers.0.mlp.experts.down_proj": torch.randn(4, 6, 5, generator=random).bfloat16(),
        "lm_head.weight": torch.randn(3, 7, generator=random).half(),
    }


def _shards(directory: Path) -> None:
    weight_map = {}
    for i, (name, tensor) in enumerate(_tensors().items()):
        file = f"model-{i}.safetensors"
        save_file({name: tensor}, directory / file)
        weight_map[name] = file
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("sharded", [False, True])
def test_tensors_come_back_bit_for_bit(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        _shards(tmp_path)
    else:
        save_file(_tensors(), tmp_path / "model.safetensors")
    source = SafetensorsSource(tmp_path)
    expected = {name.replace("model.language_model.", "model."): tensor for name, tensor in _tensors().items()}
    assert source.names == set(expected)
    for name, tensor in expected.items():
        assert source.read(name).dtype == tensor.dtype
        assert torch.equal(source.read(name), tensor)
    experts = "model.layers.0.mlp.experts.down_proj"
    assert all(torch.equal(source.read_expert(experts, e), expected[experts][e]) for e in range(4))
    with pytest.raises(WeightsError, match=r"lacks model\.layers\.1\.mlp"):
        source.read("model.layers.1.mlp.experts.down_proj")


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds no \.safetensors file"):
        SafetensorsSource(tmp_path)
    _shards(tmp_path)
    shard = tmp_path / "model-1.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(WeightsError, match=r"model-1.safetensors is not a whole safetensors file"):
        SafetensorsSource(tmp_path)
    shard.write_bytes(b"not weights at all")
    with pytest.raises(WeightsError, match=r"model-1.safetensors is not a whole safetensors file"):
        SafetensorsSource(tmp_path)
    shard.unlink()
    with pytest.raises(WeightsError, match=r"model-1.safetensors is missing"):
        SafetensorsSource(tmp_path)
    for text in ("", "[]", '{"weight_map": 3}'):
        (tmp_path / "model.safetensors.index.json").write_text(text)
        with pytest.raises(WeightsError, match="is not a shard index"):
            SafetensorsSource(tmp_path)


def test_quantised_tensors_without_scales_are_refused(tmp_path: Path) -> None:
    save_file(
        {"a": torch.ones(4, dtype=torch.int8), "b": torch.ones(4).to(torch.float8_e4m3fn)}, tmp_path / "m.safetensors"
    )
    source = SafetensorsSource(tmp_path)
    for name in "ab":
        with pytest.raises(WeightsError, match="without scales"):
            source.read(name)
