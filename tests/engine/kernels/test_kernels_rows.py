from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


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
    total = y.clone()
    assert cpu.sigmoid_mul(x, gate, onto=total) is total and torch.equal(total, y + cpu.sigmoid_mul(x, gate))
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


@pytest.mark.parametrize("heads", [1, 3, 32])
def test_gates_of_the_delta_rule_are_the_definition(cpu, heads):
    torch.manual_seed(heads)
    ba, decay, dt_bias = torch.randn(97, 2 * heads) * 8, -torch.rand(heads), torch.randn(heads)
    g, beta = cpu.delta_gates(ba, decay, dt_bias)
    exact = decay.double() * F.softplus(ba[:, heads:].double() + dt_bias.double())
    torch.testing.assert_close(g.double(), exact, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(beta.double(), ba[:, :heads].double().sigmoid(), rtol=1e-6, atol=1e-12)


def test_rows_have_the_same_bits_alone_and_together_on_every_instruction_set(each_way):
    torch.manual_seed(1)
    x, y, w, logits = torch.randn(67, 300), torch.randn(67, 300), torch.randn(300), torch.randn(67, 60)

    def steps(ops, rows: slice) -> torch.Tensor:
        a = ops.gated_rmsnorm(x[rows], y[rows], w, 1e-6)
        b = ops.add_rmsnorm(a, y[rows], w, 1e-6)
        c = ops.sigmoid_mul(b, y[rows])
        d = ops.sigmoid_mul(c, logits[rows, :1].contiguous(), onto=a)
        g, beta = ops.delta_gates(logits[rows], w[:30], w[30:60])
        ids, weights = ops.route(logits[rows], 6, True)
        return torch.cat([d, ops.silu_mul(c), g, beta, ids.float(), weights], dim=1)

    def run(ops) -> torch.Tensor:
        whole = steps(ops, slice(None))
        for size in (1, 7, 64):
            assert torch.equal(torch.cat([steps(ops, slice(i, min(67, i + size))) for i in range(0, 67, size)]), whole)
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
