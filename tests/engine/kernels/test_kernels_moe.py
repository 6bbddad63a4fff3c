from __future__ import annotations

import pytest
import torch

from engine.kernels.contract import FORMATS, ExpertShape, Ops


def make_bank(ops: Ops, experts: int, hidden: int, width: int, format: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(bank bytes, addresses [experts])."""
    shape = ExpertShape(hidden, width, format)
    down_at, stride = shape.down_offset, shape.stride
    bank = torch.zeros(experts * stride + 64, dtype=torch.uint8)
    for e in range(experts):
        gate_up = ops.pack(torch.randn(2 * width, hidden) * hidden**-0.5, format)
        down = ops.pack(torch.randn(hidden, width) * width**-0.5, format)
        bank[e * stride : e * stride + gate_up.numel()] = gate_up
        bank[e * stride + down_at : e * stride + down_at + down.numel()] = down
    return bank, torch.arange(experts) * stride + bank.data_ptr()


@pytest.mark.parametrize("experts,top_k", [(4, 1), (8, 8), (60, 4), (128, 8)])
@pytest.mark.parametrize("renormalise", [True, False])
def test_route_equals_the_reference(cpu, reference, experts, top_k, renormalise):
    torch.manual_seed(experts)
    logits = torch.randn(33, experts) * 3
    ids, weights = cpu.route(logits, top_k, renormalise)
    expected_ids, expected = reference.route(logits, top_k, renormalise)
    assert ids.dtype == torch.int32 and torch.equal(ids, expected_ids)
    torch.testing.assert_close(weights, expected, rtol=2e-6, atol=1e-8)


def test_equal_logits_go_to_the_lower_expert(cpu):
    ids, weights = cpu.route(torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0], [0.0] * 5]), 3, True)
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("hidden,width", [(64, 32), (72, 40), (256, 96)])
@pytest.mark.parametrize("rows", [1, 3, 17, 64])
def test_experts_equal_the_reference(cpu, reference, format, hidden, width, rows):
    torch.manual_seed(rows)
    bank, addresses = make_bank(reference, 6, hidden, width, format)
    x = torch.randn(rows, hidden)
    ids, weights = reference.route(torch.randn(rows, 6), 3, True)
    shape = ExpertShape(hidden, width, format)
    ours = cpu.experts(x, ids, weights, addresses, shape)
    torch.testing.assert_close(ours, reference.experts(x, ids, weights, addresses, shape), rtol=1e-4, atol=1e-5)
    del bank


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_has_the_same_bits_in_any_batch_thread_count_and_instruction_set(each_way, reference, format):
    torch.manual_seed(5)
    bank, addresses = make_bank(reference, 5, 96, 48, format)
    x = torch.randn(150, 96)
    ids, weights = reference.route(torch.randn(150, 5), 2, False)

    def run(ops) -> torch.Tensor:
        whole = ops.experts(x, ids, weights, addresses, ExpertShape(96, 48, format))
        for size in (1, 2, 7, 64):
            parts = [
                ops.experts(
                    x[i : i + size], ids[i : i + size], weights[i : i + size], addresses, ExpertShape(96, 48, format)
                )
                for i in range(0, 150, size)
            ]
            assert torch.equal(torch.cat(parts), whole), size
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
    del bank


def test_experts_are_found_by_address_wherever_they_lie(cpu):
    """A slot that holds a copy gives the same bits as the bank it was copied from."""
    bank, addresses = make_bank(cpu, 3, 64, 32, "bf16")
    shape = ExpertShape(64, 32, "bf16")
    stride = shape.stride
    slot = bank[stride : 2 * stride].clone()
    moved = addresses.clone()
    moved[1] = slot.data_ptr()
    x, ids, weights = torch.randn(4, 64), torch.tensor([[1, 2]] * 4, dtype=torch.int32), torch.rand(4, 2)
    assert torch.equal(cpu.experts(x, ids, weights, addresses, shape), cpu.experts(x, ids, weights, moved, shape))
