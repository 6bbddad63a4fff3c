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
    "q4_0": GGMLQuantizationType.Q4_0,
}
# (bytes before the first block of a group of 16 rows, inputs of a block, bytes of a block)
LAYOUT = {
    "f32": (0, 32, 2048),
    "bf16": (0, 32, 1024),
    "q8_0": (0, 32, 544),
    "q4_0": (0, 32, 288),
    "mxfp4": (0, 32, 272),
    "nvfp4": (64, 32, 288),
    "fp8": (0, 128, 2112),
}
SIZES = [(1, 1), (16, 32), (33, 100), (48, 256), (7, 176)]


def weights(n: int, k: int) -> np.ndarray:
    """Rows over many magnitudes, a zero block, and values that fall exactly between two codes."""
    w = np.random.default_rng(n * k).standard_normal((n, k)).astype(np.float32)
    w *= np.logspace(-4, 2, n, dtype=np.float32)[:, None]
    w[0, : min(k, 32)] = 0
    if n > 2 and k >= 32:
        w[2, :32] = np.arange(32) - 15.5
        w[2, 31] = 127
    if n > 3 and k >= 32:
        w[3, :32] = np.arange(32) * 0.25 - 4  # ties of E2M1 under a scale of one
    return w


def filled(w: np.ndarray, block: int = 32) -> np.ndarray:
    return np.pad(w, [(0, 0), (0, -w.shape[1] % block)])


def test_every_format_of_the_kernels_has_its_definition():
    assert set(FORMATS) <= set(formats())
    assert set(LAYOUT) == set(formats())


@pytest.mark.parametrize("name", sorted(GGUF))
def test_values_equal_gguf(name):
    w = weights(48, 128)
    theirs = quants.dequantize(quants.quantize(w, GGUF[name]), GGUF[name])
    ours = formats()[name]
    assert np.array_equal(ours.dequantise(ours.quantise(w)), theirs)


@pytest.mark.parametrize("name", sorted(formats()))
@pytest.mark.parametrize("n,k", SIZES)
def test_a_layout_holds_exactly_its_codes(name, n, k):
    oracle, w = formats()[name], weights(n, k)
    header, inputs, block = LAYOUT[name]
    data = oracle.pack(w)
    assert data.nbytes == -(-n // 16) * (header + -(-k // inputs) * block)
    assert np.array_equal(oracle.lay(oracle.quantise(filled(w))), data), "filling up does not depend on who does it"
    assert np.array_equal(oracle.unpack(data, n, k), oracle.dequantise(oracle.quantise(filled(w)))[:, :k])
    codes = oracle.lift(data, n, k)
    assert np.array_equal(oracle.lay(codes), data)
    full = oracle.dequantise(codes)
    assert not full[n:].any()
    assert not full[:, k:].any()


@pytest.mark.parametrize("name", sorted(formats()))
def test_rounding_a_rounded_matrix_changes_nothing(name):
    """So a converted model can be converted again."""
    oracle = formats()[name]
    once = oracle.unpack(oracle.pack(weights(33, 256)), 33, 256)
    twice = oracle.unpack(oracle.pack(once), 33, 256)
    if name in ("q4_0", "q8_0", "nvfp4", "fp8"):  # their scale is itself rounded
        assert np.abs(twice - once).max() <= 1e-2 * np.abs(once).max()
    else:
        assert np.array_equal(once, twice)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("n,k", SIZES)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_packers_agree_byte_by_byte_and_unpack_exactly(name, n, k, backend):
    w, oracle, ops = weights(n, k), formats()[name], kernels.get(backend)
    expected = oracle.pack(w)
    assert expected.nbytes == packed_bytes(n, k, name)
    packed = ops.pack(torch.from_numpy(w), name)
    assert np.array_equal(packed.numpy(), expected)
    assert np.array_equal(ops.unpack(Packed(packed, name, n, k)).numpy(), oracle.unpack(expected, n, k))


@pytest.mark.parametrize("name", sorted(formats()))
def test_a_packed_lane_holds_the_inputs_of_one_row(name):
    """Changing one weight changes bytes of its own block only, and unpack finds it at its place."""
    oracle, n, k = formats()[name], 32, 384
    header, inputs, block = LAYOUT[name]
    w = np.ones((n, k), dtype=np.float32)
    before = oracle.pack(w)
    w[21, 293] = -0.5
    changed = np.flatnonzero(before != oracle.pack(w)) - (header + k // inputs * block) - header
    assert set(changed // block) == {293 // inputs}
    assert oracle.unpack(oracle.pack(w), n, k)[21, 293] == pytest.approx(-0.5, rel=0.01)


@pytest.mark.parametrize("name", ["q4_0", "mxfp4", "nvfp4"])
def test_four_bit_codes_lie_where_the_kernels_look(name):
    """The definition in words, once without the shared code: vector, lane and shift of every input."""
    oracle, w = formats()[name], weights(32, 96)
    codes = oracle.quantise(w)[-1].reshape(32, 96)
    data = oracle.pack(w)
    header, _, block = LAYOUT[name]
    for row in (0, 5, 16, 31):
        for k in range(96):
            group, lane = divmod(row, 16)
            begin = group * (header + 3 * block) + header + k // 32 * block
            vector, within = divmod(k % 32, 8)
            at = begin + 64 * vector + 4 * lane
            bits = int.from_bytes(data[at : at + 4].tobytes(), "little")
            assert bits >> (4 * (within // 2) + 16 * (within % 2)) & 15 == codes[row, k]


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "fp8", "q8_0", "q4_0"])
@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-39, 1e-30, 1e30, 3e38])
def test_extreme_magnitudes_stay_numbers(name, scale):
    w = (np.random.default_rng(1).uniform(-1, 1, (16, 128)) * scale).astype(np.float32)
    if name in ("q8_0", "q4_0") and scale not in (0.0, 1e-30):
        pytest.skip("their scale is fp16, and its inverse fp32")
    values = formats()[name].unpack(formats()[name].pack(w), 16, 128)
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 1.25 * max(scale, 1e-30)
