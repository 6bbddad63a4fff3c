"""bf16 activations: what a product is, bit for bit, and that no instruction set, tile or batch changes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch

from engine import kernels
from engine.kernels import _cpu
from engine.kernels.contract import FORMATS, ExpertShape, Ops, Packed
from engine.quant import _small, formats


@pytest.fixture(autouse=True)
def bf16_activations() -> Iterator[None]:
    before = _cpu.activations()
    _cpu.set_activations(True)
    yield
    _cpu.set_activations(before)


def codes_of(matrix: Packed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes [n, spans, inputs], scales [n, spans], row scales [n]) of a packed matrix, as numbers."""
    parts = formats()[matrix.format].lift(matrix.data.numpy(), matrix.n, matrix.k)
    ones = np.ones(matrix.n)
    match matrix.format:
        case "bf16":
            return reference_values(matrix)[:, None], ones[:, None], ones
        case "q8_0":
            return parts[1], parts[0], ones
        case "q4_0":
            return parts[1].astype(np.int8) - 8, parts[0], ones
        case "mxfp4":
            return _small.E2M1[parts[1]], np.ldexp(1.0, parts[0].astype(np.int32) - 127), ones
        case "nvfp4":
            return _small.E2M1[parts[2]], _small.E4M3[parts[1]], parts[0]
        case _:
            return _small.E4M3[parts[1]].reshape(matrix.n, -1, 128), parts[0], ones


def reference_values(matrix: Packed) -> np.ndarray:
    return kernels.get("reference").unpack(matrix).numpy()


def fp32(value: Fraction) -> Fraction:
    """Rounded to 24 bits, nearest even; subnormals do not occur here."""
    if value == 0:
        return value
    unit = Fraction(2) ** (math.frexp(float(value))[1] - 24)
    return round(value / unit) * unit


def promised(x: np.ndarray, codes: np.ndarray, scales: np.ndarray, row: float, scaled: bool) -> float:
    """One output by the definition in csrc/cpu/tile.h."""
    total, at = Fraction(0), 0
    for span, scale in zip(codes, scales, strict=True):
        part = Fraction(0)
        for i in range(0, len(span), 2):
            for j in (i + 1, i):
                part = fp32(Fraction(float(span[j])) * Fraction(float(x[at + j])) + part)
        total = fp32(part * Fraction(float(scale)) + total) if scaled else part
        at += len(span)
    return float(fp32(total * Fraction(float(row))))


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "f32"])
def test_an_output_is_the_sum_in_the_order_that_is_promised(each_isa, reference, format):
    torch.manual_seed(1)
    x = torch.randn(1, 256)
    matrix = Packed(reference.pack(torch.randn(16, 256), format), format, 16, 256)
    rounded = x.bfloat16().float().numpy()[0]
    expected = [promised(rounded, *parts, format != "bf16") for parts in zip(*codes_of(matrix), strict=True)]
    for ops in each_isa():
        assert ops.linear(x, matrix)[0].tolist() == expected


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n,k", [(16, 32), (37, 100), (64, 576), (200, 333)])
def test_linear_rounds_its_input_and_equals_a_double_precision_product(each_isa, reference, format, n, k):
    torch.manual_seed(n)
    x, weight = torch.randn(9, k), torch.randn(n, k)
    matrix = Packed(reference.pack(weight, format), format, n, k)
    rounded = x if format == "f32" else x.bfloat16().float()
    exact = rounded.double() @ reference.unpack(matrix).double().T
    for ops in each_isa():
        for rows in (1, 2, 3, 4, 9):
            ours = ops.linear(x[:rows].contiguous(), matrix).double()
            torch.testing.assert_close(ours, exact[:rows], rtol=1e-5, atol=1e-5 * k**0.5)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n,k", [(16, 32), (37, 100), (96, 576), (200, 333)])
def test_a_row_has_the_same_bits_in_any_batch_thread_count_and_instruction_set(each_way, reference, format, n, k):
    torch.manual_seed(k)
    x, weight = torch.randn(71, k) * torch.logspace(-3, 3, 71)[:, None], torch.randn(n, k)
    matrix = Packed(reference.pack(weight, format), format, n, k)

    def run(ops: Ops) -> torch.Tensor:
        whole = ops.linear(x, matrix)
        for size in (1, 2, 3, 4, 5, 13, 64):
            parts = torch.cat([ops.linear(x[i : i + size], matrix) for i in range(0, len(x), size)])
            assert torch.equal(parts, whole), size
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)


def test_subnormal_weights_inputs_and_sums_are_flushed_on_every_instruction_set(each_way, reference):
    torch.manual_seed(2)
    x, weight = torch.randn(5, 64) * 1e-19, torch.randn(32, 64) * torch.logspace(-22, -17, 32)[:, None]
    x[1] *= 1e-20
    matrix = Packed(reference.pack(weight, "bf16"), "bf16", 32, 64)
    first, *rest = each_way(lambda ops: ops.linear(x, matrix))
    assert (first[1] == 0).all() and (first[0] != 0).any()
    assert all(torch.equal(first, other) for other in rest)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("hidden,width", [(96, 48), (72, 40)])
def test_experts_have_the_same_bits_everywhere_and_are_near_the_reference(
    each_way, reference, format, hidden, width, make_bank
):
    torch.manual_seed(5)
    shape = ExpertShape(hidden, width, format, bias=True, activation="swiglu_oai")
    bank, addresses = make_bank(reference, 5, shape)
    x = torch.randn(60, hidden)
    ids, weights = reference.route(torch.randn(60, 5), 2, False)

    def run(ops: Ops) -> torch.Tensor:
        whole = ops.experts(x, ids, weights, addresses, shape)
        for size in (1, 3, 7):
            cuts = [slice(i, i + size) for i in range(0, 60, size)]
            parts = [ops.experts(x[c], ids[c], weights[c], addresses, shape) for c in cuts]
            assert torch.equal(torch.cat(parts), whole), size
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
    reference.set_activations("bf16")
    try:
        expected = reference.experts(x, ids, weights, addresses, shape)
    finally:
        reference.set_activations("f32")
    del bank
    # An activation that lies next to a rounding boundary may be rounded the other way.
    torch.testing.assert_close(first, expected, rtol=1e-2, atol=2e-3 if format != "f32" else 1e-5)


def test_the_precision_is_named_and_a_wrong_name_is_an_error(cpu):
    assert cpu.activations() == "bf16"
    cpu.set_activations("f32")
    assert cpu.activations() == "f32"
    with pytest.raises(ValueError, match="bf16"):
        cpu.set_activations("fp8")
    assert kernels.best_activations() in ("f32", "bf16")
