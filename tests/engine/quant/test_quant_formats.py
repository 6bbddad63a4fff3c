"""One contract for every weight format, so that adding a file to engine/quant adds its tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from engine import kernels
from engine.kernels.contract import FORMATS, Packed, packed_bytes
from engine.quant import formats

GGUF = {
    "f32": GGMLQuantizationType.F32,
    "bf16": GGMLQuantizationType.BF16,
    "q8_0": GGMLQuantizationType.Q8_0,
}


def weights(n: int, k: int) -> np.ndarray:
    """Rows over many magnitudes, a zero block, and values that fall exactly between two codes."""
    w = np.random.default_rng(n * k).standard_normal((n, k)).astype(np.float32)
    w *= np.logspace(-4, 2, n, dtype=np.float32)[:, None]
    w[0, : min(k, 32)] = 0
    if n > 2 and k >= 32:
        w[2, :32] = np.arange(32) - 15.5
        w[2, 31] = 127
    return w


def test_the_folder_and_the_kernels_know_the_same_formats():
    assert set(formats()) == set(FORMATS)


@pytest.mark.parametrize("name", sorted(formats()))
def test_values_equal_gguf(name):
    w = weights(48, 128)
    theirs = quants.dequantize(quants.quantize(w, GGUF[name]), GGUF[name])
    ours = formats()[name]
    assert np.array_equal(ours.dequantise(ours.quantise(w)), theirs)


@pytest.mark.parametrize("name", sorted(formats()))
@pytest.mark.parametrize("n,k", [(1, 1), (16, 32), (33, 100), (48, 256)])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_packers_agree_byte_by_byte_and_unpack_exactly(name, n, k, backend):
    w, oracle, ops = weights(n, k), formats()[name], kernels.get(backend)
    expected = oracle.pack(w)
    assert expected.nbytes == packed_bytes(n, k, name)
    packed = ops.pack(torch.from_numpy(w), name)
    assert np.array_equal(packed.numpy(), expected)
    values = oracle.unpack(expected, n, k)
    assert np.array_equal(ops.unpack(Packed(packed, name, n, k)).numpy(), values)
    padded = np.zeros((n, -(-k // 32) * 32), dtype=np.float32)
    padded[:, :k] = w
    assert np.array_equal(oracle.dequantise(oracle.quantise(padded))[:, :k], values)


@pytest.mark.parametrize("name", sorted(formats()))
def test_a_packed_lane_holds_the_inputs_of_one_row(name):
    """Changing one weight changes bytes of its own block only, and unpack finds it at its place."""
    oracle, n, k = formats()[name], 32, 96
    w = np.ones((n, k), dtype=np.float32)
    before = oracle.pack(w)
    w[21, 70] = -0.5
    changed = np.flatnonzero(before != oracle.pack(w))
    block = packed_bytes(16, 32, name)
    assert set(changed // block) == {1 * 3 + 2}
    assert oracle.unpack(oracle.pack(w), n, k)[21, 70] == pytest.approx(-0.5, rel=0.01)
