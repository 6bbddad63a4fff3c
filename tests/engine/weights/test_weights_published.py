"""Quantised safetensors checkpoints, read against the code and the formulas of those who publish them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine.errors import Unsupported, WeightsError
from engine.quant import formats
from engine.weights.quantised import Quantised, format_of, join, pick
from engine.weights.safetensors import SafetensorsSource

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def random_bytes(*shape: int, seed: int = 0, low: int = 0, high: int = 256) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def e4m3(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.float8_e4m3fn)


def save(directory: Path, tensors: dict[str, torch.Tensor], **config: object) -> SafetensorsSource:
    save_file(tensors, directory / "model.safetensors")
    if config:
        (directory / "config.json").write_text(json.dumps(config))
    return SafetensorsSource(directory)


def assert_exact(matrix: object, values: torch.Tensor, format: str) -> None:
    """The matrix is still quantised, and stands for `values` as codes, as fp32 and as the kernels' bytes."""
    assert isinstance(matrix, Quantised)
    assert (matrix.format, matrix.shape) == (format, tuple(values.shape))
    assert torch.equal(matrix.float(), values)
    assert np.array_equal(formats()[format].unpack(matrix.pack().numpy(), *matrix.shape), values.numpy())


def test_mxfp4_experts_are_what_transformers_makes_of_them(tmp_path: Path) -> None:
    blocks, scales = random_bytes(3, 40, 5, 16), random_bytes(3, 40, 5, seed=1, low=90, high=140)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    bias = torch.randn(3, 40)
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": scales, f"{name}_bias": bias}
    source = save(tmp_path, tensors)
    assert source.names == {name, f"{name}_bias"}
    assert (source.kind(name), source.kind(f"{name}_bias")) == ("mxfp4", "f32")
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)  # [experts, inputs, outputs]
    for expert in range(3):
        assert_exact(source.read_expert(name, expert), theirs[expert].T.contiguous(), "mxfp4")
        read = source.read_expert(f"{name}_bias", expert)
        assert isinstance(read, torch.Tensor)
        assert torch.equal(read, bias[expert])


@pytest.mark.parametrize("k", [96, 80])
def test_nvfp4_matrices_are_what_modelopt_means(tmp_path: Path, k: int) -> None:
    codes, scales, scale_2 = random_bytes(20, k // 2), e4m3(20, k // 16, seed=2).abs(), torch.tensor(0.00123)
    tensors = {
        "a.weight": codes,
        "a.weight_scale": scales,
        "a.weight_scale_2": scale_2,
        "a.input_scale": torch.tensor(3.0),
        "a.k_scale": torch.tensor(1.0),
        "norm.weight": torch.ones(4),
    }
    source = save(tmp_path, tensors)
    assert source.names == {"a.weight", "norm.weight"}
    unpacked = torch.empty(20, k, dtype=torch.float64)
    unpacked[:, 0::2], unpacked[:, 1::2] = E2M1[(codes & 15).long()], E2M1[(codes >> 4).long()]
    exact = unpacked.view(20, -1, 16) * scales.double()[..., None] * scale_2.double()
    assert_exact(source.read("a.weight"), exact.view(20, k).float(), "nvfp4")


def test_nvfp4_of_compressed_tensors_is_divided(tmp_path: Path) -> None:
    codes, scales, divisor = random_bytes(20, 48), e4m3(20, 6, seed=3).abs(), torch.tensor([713.5])
    tensors = {
        "a.weight_packed": codes,
        "a.weight_scale": scales,
        "a.weight_global_scale": divisor,
        "a.input_global_scale": torch.tensor([2.0]),
    }
    source = save(tmp_path, tensors)
    assert source.names == {"a.weight"}
    assert source.kind("a.weight") == "nvfp4"
    unpacked = torch.empty(20, 96, dtype=torch.float64)
    unpacked[:, 0::2], unpacked[:, 1::2] = E2M1[(codes & 15).long()], E2M1[(codes >> 4).long()]
    exact = (unpacked.view(20, -1, 16) * scales.double()[..., None] / divisor.double()).view(20, 96)
    found = source.read("a.weight")
    torch.testing.assert_close(found.float().double(), exact, rtol=2**-23, atol=0)
    assert_exact(found, found.float(), "nvfp4")


def test_nvfp4_stacks_are_read_one_expert_at_a_time(tmp_path: Path) -> None:
    codes, scales, scale_2 = random_bytes(3, 8, 16), e4m3(3, 8, 2, seed=4), torch.tensor([0.5, 2.0, 0.25])
    stack = {"e.down_proj": codes, "e.down_proj_scale": scales, "e.down_proj_scale_2": scale_2}
    (tmp_path / "stack").mkdir()
    source = save(tmp_path / "stack", stack)
    for expert in range(3):
        (one := tmp_path / str(expert)).mkdir()
        parts = {name: tensor[expert].clone() for name, tensor in stack.items()}
        alone = save(one, parts).read("e.down_proj")
        assert torch.equal(source.read_expert("e.down_proj", expert).float(), alone.float())


@pytest.mark.parametrize(("n", "k"), [(256, 384), (200, 300), (8, 100)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
def test_fp8_blocks_are_what_deepseek_means(tmp_path: Path, n: int, k: int, scale_dtype: torch.dtype) -> None:
    from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

    weight = e4m3(n, k, seed=n)
    scale = torch.rand(-(-n // 128), -(-k // 128), generator=torch.Generator().manual_seed(6)).to(scale_dtype)
    quantisation = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    source = save(tmp_path, {"a.weight": weight, "a.weight_scale_inv": scale}, quantization_config=quantisation)
    assert source.names == {"a.weight"}
    theirs = _dequantize_fp8_weight(weight, scale, [128, 128], torch.float32)
    assert_exact(source.read("a.weight"), theirs, "fp8")


@pytest.mark.parametrize("shape", [(), (1,), (40, 1)])
def test_fp8_scales_of_a_tensor_or_an_output_are_spread(tmp_path: Path, shape: tuple[int, ...]) -> None:
    weight, scale = e4m3(40, 160, seed=8), torch.rand(shape, generator=torch.Generator().manual_seed(9))
    source = save(tmp_path, {"a.weight": weight, "a.weight_scale": scale})
    assert_exact(source.read("a.weight"), weight.float() * scale.reshape(-1, 1), "fp8")


def test_rows_of_a_quantised_matrix_move_without_a_change(tmp_path: Path) -> None:
    scale = torch.rand(1, 1)
    source = save(
        tmp_path,
        {"a": e4m3(6, 64, seed=1), "a_scale_inv": scale, "b": e4m3(5, 64, seed=2), "b_scale_inv": scale.clone()},
    )
    a, b = source.read("a"), source.read("b")
    whole = join([a, b])
    order = np.array([10, 0, 7, 3, 3])
    assert_exact(pick(whole, order), torch.cat([a.float(), b.float()])[torch.from_numpy(order)], "fp8")
    mixed = join([a, torch.ones(2, 64, dtype=torch.bfloat16)])
    assert isinstance(mixed, torch.Tensor)
    assert torch.equal(mixed[:6], a.float())
    assert format_of(a) == "fp8"


E4M3_NAN = torch.tensor(float("nan")).to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("format", "name", "nan"),
    [
        ("mxfp4", "a.weight_scales", 255),
        ("nvfp4", "a.weight_scale", E4M3_NAN),
        ("nvfp4", "a.weight_scale_2", float("inf")),
        ("fp8", "a.weight", E4M3_NAN),
        ("fp8", "a.weight_scale_inv", float("nan")),
    ],
)
def test_what_is_no_number_is_refused_by_name(tmp_path: Path, format: str, name: str, nan: object) -> None:
    tensors = {
        "mxfp4": {
            "a.weight_blocks": random_bytes(4, 40, 2, 16),
            "a.weight_scales": random_bytes(4, 40, 2, low=100, high=140),
        },
        "nvfp4": {
            "a.weight": random_bytes(4, 40, 32),
            "a.weight_scale": e4m3(4, 40, 4, seed=2),
            "a.weight_scale_2": torch.rand(4) + 1,
        },
        "fp8": {"a.weight": e4m3(4, 40, 64, seed=4), "a.weight_scale_inv": torch.rand(4, 1, 1)},
    }[format]
    save(tmp_path, tensors).read_expert("a.weight", 3)
    tensors[name][3].view(-1)[0] = nan
    source = save(tmp_path, tensors)
    source.read_expert("a.weight", 2)
    file = re.escape(str(tmp_path / "model.safetensors"))
    with pytest.raises(WeightsError, match=rf"^{file}: a\.weight, expert 3 \({format}\) holds a "):
        source.read_expert("a.weight", 3)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"quantised in a way that is not read here \(a\.qweight\)"):
        save(tmp_path, {"a.qweight": torch.ones(4, dtype=torch.int32)})
    tensors = {"a.weight": e4m3(64, 64, seed=1), "a.weight_scale_inv": torch.ones(1, 1)}
    with pytest.raises(Unsupported, match="over 64 inputs"):
        save(tmp_path, tensors, quantization_config={"weight_block_size": [64, 64]})
