from __future__ import annotations

import pytest
import torch

from engine.kernels.contract import FORMATS, Packed, packed_bytes

SHAPES = [(1, 1), (16, 32), (37, 100), (64, 576), (130, 96), (200, 333)]


def packed(ops, weight: torch.Tensor, format: str) -> Packed:
    return Packed(ops.pack(weight, format), format, *weight.shape)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n,k", SHAPES)
def test_pack_equals_the_reference_bytes_and_unpacks_to_the_same_values(cpu, reference, format, n, k):
    torch.manual_seed(n)
    weight = torch.randn(n, k) * torch.logspace(-6, 2, n)[:, None]
    ours = cpu.pack(weight, format)
    assert ours.numel() == packed_bytes(n, k, format)
    assert torch.equal(ours, reference.pack(weight, format))
    matrix = Packed(ours, format, n, k)
    assert torch.equal(cpu.unpack(matrix), reference.unpack(matrix))
    if format == "f32":
        assert torch.equal(cpu.unpack(matrix), weight)
    if format == "bf16":
        assert torch.equal(cpu.unpack(matrix), weight.bfloat16().float())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n,k", SHAPES)
def test_linear_equals_a_double_precision_product(each_isa, reference, format, n, k):
    torch.manual_seed(k)
    weight, x, bias = torch.randn(n, k), torch.randn(70, k), torch.randn(n)
    matrix = packed(reference, weight, format)
    exact = x.double() @ reference.unpack(matrix).double().T
    close = {"rtol": 1e-5, "atol": 1e-5 * k**0.5}
    for ops in each_isa():
        for rows in (1, 2, 3, 5, 8, 17, 64, 70):
            some = x[:rows].contiguous()
            torch.testing.assert_close(ops.linear(some, matrix).double(), exact[:rows], **close)
            torch.testing.assert_close(ops.linear(some, matrix, bias).double(), exact[:rows] + bias, **close)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n,k", SHAPES)
def test_a_row_has_the_same_bits_in_any_batch_thread_count_and_instruction_set(each_way, reference, format, n, k):
    torch.manual_seed(k)
    x, weight = torch.randn(71, k), torch.randn(n, k)
    matrix = packed(reference, weight, format)

    def run(ops) -> torch.Tensor:
        whole = ops.linear(x, matrix)
        for size in (1, 2, 3, 4, 7, 64):
            parts = torch.cat([ops.linear(x[i : i + size], matrix) for i in range(0, len(x), size)])
            assert torch.equal(parts, whole), size
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)


def test_weights_may_lie_at_any_offset_of_a_bank(cpu):
    weight, x = torch.randn(33, 96), torch.randn(3, 96)
    bytes_ = cpu.pack(weight, "q8_0")
    bank = torch.zeros(bytes_.numel() + 64, dtype=torch.uint8)
    bank[64:] = bytes_
    view = Packed(bank[64:], "q8_0", 33, 96)
    assert torch.equal(cpu.linear(x, view), cpu.linear(x, Packed(bytes_, "q8_0", 33, 96)))


@pytest.mark.parametrize("format", FORMATS)
def test_embedding_returns_rows_of_the_packed_table(cpu, format):
    table = packed(cpu, torch.randn(50, 72), format)
    ids = torch.tensor([0, 49, 7, 7], dtype=torch.int32)
    assert torch.equal(cpu.embedding(ids, table), cpu.unpack(table)[ids.long()])


def test_padding_never_leaks_not_a_number_into_other_outputs(cpu):
    x = torch.full((3, 40), float("nan"))
    x[1] = 1.0
    out = cpu.linear(x, packed(cpu, torch.ones(20, 40), "q8_0"))
    assert out[0].isnan().all() and out[2].isnan().all()
    torch.testing.assert_close(out[1], torch.full((20,), 40.0), rtol=1e-3, atol=0)
