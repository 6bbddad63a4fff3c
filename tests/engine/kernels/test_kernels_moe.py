from __future__ import annotations

import pytest
import torch

from engine.errors import Unsupported
from engine.kernels.contract import FORMATS, ExpertShape


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
@pytest.mark.parametrize("bias,activation", [(False, "silu"), (True, "swiglu_oai")])
def test_experts_equal_the_reference(each_isa, reference, make_bank, format, hidden, width, bias, activation):
    torch.manual_seed(hidden)
    shape = ExpertShape(hidden, width, format, bias, activation)
    bank, addresses = make_bank(reference, 6, shape)
    x = torch.randn(24, hidden)
    ids, weights = reference.route(torch.randn(24, 6), 3, True)
    expected = reference.experts(x, ids, weights, addresses, shape)
    for ops in each_isa():
        for rows in (1, 3, 24):
            ours = ops.experts(x[:rows].contiguous(), ids[:rows].contiguous(), weights[:rows], addresses, shape)
            torch.testing.assert_close(ours, expected[:rows], rtol=1e-4, atol=1e-5)
    del bank


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_has_the_same_bits_in_any_batch_thread_count_and_instruction_set(each_way, reference, make_bank, format):
    torch.manual_seed(5)
    shape = ExpertShape(96, 48, format)
    bank, addresses = make_bank(reference, 5, shape)
    x = torch.randn(150, 96)
    ids, weights = reference.route(torch.randn(150, 5), 2, False)

    def run(ops) -> torch.Tensor:
        whole = ops.experts(x, ids, weights, addresses, shape)
        for size in (1, 2, 7, 64):
            parts = [
                ops.experts(x[i : i + size], ids[i : i + size], weights[i : i + size], addresses, shape)
                for i in range(0, 150, size)
            ]
            assert torch.equal(torch.cat(parts), whole), size
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
    del bank


def test_experts_are_found_by_address_wherever_they_lie(cpu, make_bank):
    """A slot that holds a copy gives the same bits as the bank it was copied from."""
    shape = ExpertShape(64, 32, "bf16")
    bank, addresses = make_bank(cpu, 3, shape)
    slot = bank[1].clone()
    moved = addresses.clone()
    moved[1] = slot.data_ptr()
    x, ids, weights = torch.randn(4, 64), torch.tensor([[1, 2]] * 4, dtype=torch.int32), torch.rand(4, 2)
    assert torch.equal(cpu.experts(x, ids, weights, addresses, shape), cpu.experts(x, ids, weights, moved, shape))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_parts_that_others_compute_are_left_alone_and_the_sum_is_that_of_experts(cpu, make_bank, precision):
    """A step split between two executors: each knows the addresses of its own experts only."""
    shape = ExpertShape(64, 32, "mxfp4")
    bank, addresses = make_bank(cpu, 6, shape)
    x, ids, weights = torch.randn(9, 64), torch.randint(0, 6, (9, 3), dtype=torch.int32), torch.rand(9, 3)
    before = cpu.activations()
    cpu.set_activations(precision)
    try:
        whole = cpu.experts(x, ids, weights, addresses, shape)
        parts = torch.full((9, 3, 64), 7.0)
        mine = torch.tensor([1, 0, 1, 1, 0, 0])
        cpu.expert_outputs(x, ids, addresses * mine, shape, parts)
        assert (parts[mine[ids.long()] == 0] == 7.0).all() and (parts[mine[ids.long()] == 1] != 7.0).any()
        cpu.expert_outputs(x, ids, addresses * (1 - mine), shape, parts)
        assert torch.equal(cpu.combine(parts, weights), whole)
        cpu.expert_outputs(x, ids, addresses * 0, shape, parts)
        assert torch.equal(cpu.combine(parts, weights), whole)
    finally:
        cpu.set_activations(before)
    del bank


def test_an_unknown_activation_is_refused(cpu):
    with pytest.raises(Unsupported, match="silu"):
        cpu.experts(
            torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, 1),
            torch.ones(1, dtype=torch.int64), ExpertShape(32, 16, "f32", activation="gelu"),
        )  # fmt: skip
