from __future__ import annotations

import pytest
import torch

SIZES = [(2, 4, 16, 16), (1, 3, 32, 40), (4, 8, 128, 128), (2, 2, 24, 100)]  # k_heads, v_heads, k_dim, v_dim
WIDTH = 4


def inputs(rows: int, size: tuple[int, int, int, int]) -> dict[str, torch.Tensor]:
    k_heads, v_heads, k_dim, v_dim = size
    return {
        "q": torch.randn(rows, k_heads, k_dim), "k": torch.randn(rows, k_heads, k_dim),
        "v": torch.randn(rows, v_heads, v_dim), "g": -torch.rand(rows, v_heads), "beta": torch.rand(rows, v_heads),
        "x": torch.randn(rows, channels(size)), "weight": torch.randn(channels(size), WIDTH),
    }  # fmt: skip


def channels(size: tuple[int, int, int, int]) -> int:
    return 2 * size[0] * size[2] + size[1] * size[3]


def recurrent_bytes(size: tuple[int, int, int, int]) -> int:
    return size[1] * size[2] * size[3] * 4


def arena_for(make_arena, seqs, size):
    return make_arena(seqs, 16, 16, 64, recurrent_bytes(size) + (WIDTH - 1) * channels(size) * 4, 2)


def step(ops, batch, size, data, rows=slice(None)) -> torch.Tensor:
    part = {name: t if name == "weight" else t[rows].contiguous() for name, t in data.items()}
    mixed = ops.conv(batch, 1, part["x"], part["weight"], recurrent_bytes(size))
    out = ops.delta_rule(batch, 1, part["q"], part["k"], part["v"], part["g"], part["beta"])
    return torch.cat([mixed, out.flatten(1)], dim=1)


@pytest.mark.parametrize("size", SIZES)
def test_outputs_states_and_snapshots_equal_the_reference(cpu, reference, make_arena, size):
    torch.manual_seed(size[2])
    arena = arena_for(make_arena, 3, size)
    data = inputs(21, size)
    batch = arena.batch({0: (5, 12), 2: (9, 1), 1: (0, 8)}, snapshots=[(0, 12), (0, 5), (2, 0), (2, 2), (1, 1)])
    start = arena.data.clone()
    theirs = step(reference, batch, size, data)
    expected = arena.data.clone()
    arena.data.copy_(start)
    ours = step(cpu, batch, size, data)
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(arena.data.view(torch.float32), expected.view(torch.float32), rtol=2e-5, atol=2e-5)


def test_a_snapshot_resumes_with_the_bits_of_an_uninterrupted_run(cpu, make_arena):
    size = (2, 4, 32, 48)
    torch.manual_seed(0)
    arena = arena_for(make_arena, 1, size)
    data = inputs(30, size)
    batch = arena.batch({0: (0, 30)}, snapshots=[(0, 11)])
    whole = step(cpu, batch, size, data)
    end = arena.data[int(batch.states[0, 1]) :][: arena.state_bytes].clone()
    resumed = arena.batch({0: (11, 19)})
    resumed.states = batch.snapshot_states
    assert torch.equal(step(cpu, resumed, size, data, slice(11, 30)), whole[11:])
    assert torch.equal(arena.data[int(batch.snapshot_states[0, 1]) :][: arena.state_bytes], end)


@pytest.mark.parametrize("size", SIZES)
def test_a_row_has_the_same_bits_in_any_chunk_thread_count_and_instruction_set(each_way, make_arena, size):
    torch.manual_seed(7)
    arena = arena_for(make_arena, 2, size)
    data = inputs(130, size)
    start = arena.data.clone()

    def run(ops) -> torch.Tensor:
        arena.data.copy_(start)
        both = step(ops, arena.batch({0: (0, 65), 1: (0, 65)}), size, data)
        end = arena.data.clone()
        for size_ in (1, 7, 64):
            arena.data.copy_(start)
            for s in range(2):
                for at in range(0, 65, size_):
                    count = min(size_, 65 - at)
                    rows = slice(65 * s + at, 65 * s + at + count)
                    assert torch.equal(step(ops, arena.batch({s: (at, count)}), size, data, rows), both[rows])
            assert torch.equal(arena.data, end)
        return torch.cat([both.flatten(), end.view(torch.float32)])

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
