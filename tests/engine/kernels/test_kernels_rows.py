from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("rows", [1, 3, 17, 64])
@pytest.mark.parametrize("dim", [1, 16, 100, 576, 2048])
def test_norms_and_gates_equal_the_reference(cpu, reference, rows, dim):
    torch.manual_seed(dim)
    x, y, w = torch.randn(rows, dim), torch.randn(rows, dim) * 3, torch.randn(dim)
    close = {"rtol": 2e-6, "atol": 2e-6}
    torch.testing.assert_close(cpu.rmsnorm(x, w, 1e-6), reference.rmsnorm(x, w, 1e-6), **close)
    torch.testing.assert_close(cpu.gated_rmsnorm(x, y, w, 1e-5), reference.gated_rmsnorm(x, y, w, 1e-5), **close)
    torch.testing.assert_close(cpu.sigmoid_mul(x, y), reference.sigmoid_mul(x, y), **close)
    gate = torch.randn(rows, 1)
    torch.testing.assert_close(cpu.sigmoid_mul(x, gate), reference.sigmoid_mul(x, gate), **close)
    both = torch.cat([x, y], dim=1)
    torch.testing.assert_close(cpu.silu_mul(both), reference.silu_mul(both), **close)
    ours, theirs = x.clone(), x.clone()
    torch.testing.assert_close(cpu.add_rmsnorm(ours, y, w, 1e-6), reference.add_rmsnorm(theirs, y, w, 1e-6), **close)
    assert torch.equal(ours, theirs)


def test_norm_over_the_last_of_three_dimensions(cpu, reference):
    x, w = torch.randn(5, 7, 24), torch.randn(24)
    torch.testing.assert_close(cpu.rmsnorm(x, w, 1e-6), reference.rmsnorm(x, w, 1e-6), rtol=2e-6, atol=2e-6)


def test_silu_is_accurate_over_the_whole_range_and_keeps_nan(cpu):
    gate = torch.linspace(-80, 80, 100_001)
    ours = cpu.silu_mul(torch.stack([gate, torch.ones_like(gate)]).view(1, -1))[0]
    exact = gate.double() / (1 + torch.exp(-gate.double()))
    assert ((ours - exact).abs() / exact.abs().clamp_min(1e-30)).max() < 5e-7
    edge = torch.tensor([[float("nan"), -1000.0, 1000.0, 0.0, 1.0, 1.0, 1.0, 1.0]])
    out = cpu.silu_mul(edge)[0]
    assert out[0].isnan() and abs(out[1]) < 1e-30 and out[2] == 1000 and out[3] == 0


@pytest.mark.parametrize("heads,dim,rotary", [(1, 16, 16), (3, 64, 64), (4, 80, 20), (2, 256, 64)])
def test_rope_equals_the_reference(cpu, reference, heads, dim, rotary):
    angles = torch.outer(torch.arange(50.0), 1e4 ** (-torch.arange(rotary // 2) * 2.0 / rotary))
    x, positions = torch.randn(9, heads, dim), torch.randint(0, 50, (9,), dtype=torch.int32)
    ours, theirs = x.clone(), x.clone()
    cpu.rope_(ours, angles.cos(), angles.sin(), positions)
    reference.rope_(theirs, angles.cos(), angles.sin(), positions)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert torch.equal(ours[..., rotary:], x[..., rotary:])


def test_rows_have_the_same_bits_alone_and_together_on_every_instruction_set(each_way):
    torch.manual_seed(1)
    x, y, w, logits = torch.randn(67, 300), torch.randn(67, 300), torch.randn(300), torch.randn(67, 60)
    angles = torch.randn(100, 25)
    positions = torch.arange(67, dtype=torch.int32)

    def steps(ops, rows: slice) -> torch.Tensor:
        a = ops.gated_rmsnorm(x[rows], y[rows], w, 1e-6)
        b = ops.add_rmsnorm(a, y[rows], w, 1e-6)
        c = ops.sigmoid_mul(b, y[rows])
        heads = c.view(-1, 5, 60).clone()
        ops.rope_(heads, angles.cos(), angles.sin(), positions[rows])
        ids, weights = ops.route(logits[rows], 6, True)
        return torch.cat([heads.flatten(1), ops.silu_mul(c), ids.float(), weights], dim=1)

    def run(ops) -> torch.Tensor:
        whole = steps(ops, slice(None))
        for size in (1, 7, 64):
            assert torch.equal(torch.cat([steps(ops, slice(i, min(67, i + size))) for i in range(0, 67, size)]), whole)
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
