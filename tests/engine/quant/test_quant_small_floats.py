"""Formats of four and eight bits against definitions from outside: torch's float8, the OCP tables, gguf and exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from engine.quant import _small, fp8, mxfp4, nvfp4

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # OCP MX 1.0, table 5


def spread(n: int, seed: int = 0) -> np.ndarray:
    """Numbers of all signs and magnitudes, and every value and midpoint of the small formats."""
    random = np.random.default_rng(seed)
    wide = random.standard_normal(n) * 10.0 ** random.uniform(-6, 3, n)
    values = np.concatenate([_small.E4M3[~np.isnan(_small.E4M3)], _small.E2M1])
    middles = (np.sort(values)[1:] + np.sort(values)[:-1]) / 2
    near = [np.nextafter(middles.astype(np.float32), np.float32(s * np.inf)) for s in (-1, 1)]
    return np.concatenate([wide, values, middles, *near, [0.0, -0.0, 448, 449, 464, 465, 1e9]]).astype(np.float32)


def test_e4m3_bytes_are_those_of_torch():
    bytes_ = torch.arange(256, dtype=torch.uint8)
    assert np.array_equal(bytes_.view(torch.float8_e4m3fn).float().numpy(), _small.E4M3, equal_nan=True)
    values = spread(20000)
    saturated = torch.from_numpy(values).clamp(-448, 448)  # torch makes NaN of what is too large
    assert np.array_equal(_small.to_e4m3(values), saturated.to(torch.float8_e4m3fn).view(torch.uint8).numpy())


def test_e2m1_is_the_table_with_ties_to_even():
    assert _small.E2M1.tolist() == [*E2M1, *(-v for v in E2M1)]
    for value in spread(5000, seed=1):
        distances = [abs(np.float64(abs(value)) - v) for v in E2M1]
        nearest = [c for c, d in enumerate(distances) if d == min(distances)]
        code = nearest[0] if len(nearest) == 1 else next(c for c in nearest if c % 2 == 0)
        assert _small.to_e2m1(np.array([value]))[0] == code + 8 * np.signbit(value)


def test_mxfp4_values_are_those_that_gguf_reads_from_the_same_codes():
    w = np.random.default_rng(2).standard_normal((40, 256)).astype(np.float32) * np.logspace(-20, 20, 40)[:, None]
    scales, codes = mxfp4.quantise(w.astype(np.float32))
    halves = codes.reshape(40, 8, 2, 16)
    blocks = np.concatenate([scales[..., None], halves[:, :, 0] | halves[:, :, 1] << 4], -1).astype(np.uint8)
    theirs = quants.dequantize(blocks.reshape(40, -1), GGMLQuantizationType.MXFP4)
    assert np.array_equal(mxfp4.dequantise((scales, codes)), theirs)


def test_mxfp4_rounds_as_the_ocp_specification_says():
    w = np.zeros((1, 32), np.float32)
    w[0, :10] = [7.9, 6, 5, 4.99, 2.5, 1.75, 0.25, -0.75, -0.26, 1e-9]  # largest 7.9: scale 2^(2 - 2)
    scales, codes = mxfp4.quantise(w)
    assert scales[0, 0] == 127
    assert mxfp4.dequantise((scales, codes))[0, :10].tolist() == [6, 6, 4, 4, 2, 2, 0, -1, -0.5, 0]
    scales, _ = mxfp4.quantise(np.ldexp(w, -9))
    assert scales[0, 0] == 127 - 9


def test_mxfp4_scale_of_a_power_of_two_is_exact():
    for exponent in range(-126, 128):
        scales, _ = mxfp4.quantise(np.full((1, 32), 2.0**exponent, np.float32))
        assert scales[0, 0] == max(exponent - 2 + 127, 0)


def test_nvfp4_values_round_the_exact_product_once():
    row, scales, codes = nvfp4.quantise(np.random.default_rng(3).standard_normal((9, 96)).astype(np.float32))
    found = nvfp4.dequantise((row, scales, codes)).reshape(9, -1, 16)
    parts = [np.float64(row)[:, None, None], np.float64(_small.E4M3[scales])[..., None], np.float64(_small.E2M1[codes])]
    assert np.array_equal(found, (parts[0] * parts[1] * parts[2]).astype(np.float32))  # 24 + 4 + 2 bits fit a double


def test_nvfp4_scales_follow_the_recipe():
    w = np.random.default_rng(4).standard_normal((5, 64)).astype(np.float32)
    w[2] = 0
    row, scales, codes = nvfp4.quantise(w)
    assert row.tolist() == (np.abs(w).max(1) / np.float32(2688)).tolist()
    assert scales.reshape(5, -1).max(1)[[0, 1, 3, 4]].tolist() == [0x7E] * 4, "the largest block has the largest scale"
    assert not scales[2].any()
    assert not codes[2].any()
    blocks = np.abs(w).reshape(5, 4, 16).max(-1)
    wanted = torch.from_numpy(blocks / np.float32(6) / np.where(row, row, 1)[:, None]).to(torch.float8_e4m3fn)
    assert np.array_equal(scales, wanted.view(torch.uint8).numpy())
    error = np.abs(nvfp4.dequantise((row, scales, codes)) - w)
    assert (error <= np.repeat(blocks / 6, 16, 1).reshape(5, 64) * 1.07).all(), "half a step of the widest gap"


@pytest.mark.parametrize("k", [128, 96, 320])
def test_fp8_is_a_cast_of_torch_after_scaling(k):
    w = torch.randn(20, k, generator=torch.Generator().manual_seed(k)) * torch.logspace(-6, 3, 20)[:, None]
    scales, codes = fp8.quantise(w.numpy())
    full = torch.nn.functional.pad(w, (0, -k % 128)).view(20, -1, 128)
    scale = full.abs().amax(-1) / 448
    assert np.array_equal(scales, scale.numpy())
    cast = (full / scale[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert np.array_equal(codes, cast.view(torch.uint8).numpy())
    assert np.array_equal(fp8.dequantise((scales, codes)), (cast.float() * scale[..., None]).view(20, -1).numpy())
