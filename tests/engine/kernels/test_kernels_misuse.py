"""Wrong arguments raise; none of them may crash the process or write outside an array."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from engine import kernels
from engine.errors import Unsupported
from engine.kernels.contract import ExpertShape, Heads, Packed


def test_unknown_backend_and_format_are_refused(cpu):
    with pytest.raises(Unsupported):
        kernels.get("quantum")
    with pytest.raises(Unsupported):
        cpu.pack(torch.zeros(16, 32), "q9")


def test_wrong_dtype_layout_and_size_raise(cpu):
    weight = Packed(cpu.pack(torch.zeros(16, 32), "f32"), "f32", 16, 32)
    with pytest.raises(TypeError, match="float64"):
        cpu.linear(torch.zeros(2, 32, dtype=torch.float64), weight)
    with pytest.raises(TypeError, match="strides"):
        cpu.linear(torch.zeros(32, 2).T, weight)
    with pytest.raises(ValueError, match="inputs"):
        cpu.linear(torch.zeros(2, 31), weight)
    with pytest.raises(ValueError, match="biases"):
        cpu.linear(torch.zeros(2, 32), weight, torch.zeros(15))
    with pytest.raises(ValueError, match="bytes"):
        cpu.linear(torch.zeros(2, 32), Packed(weight.data[:-1], "f32", 16, 32))
    with pytest.raises(ValueError, match="dimensions"):
        cpu.linear(torch.zeros(32), weight)
    with pytest.raises(ValueError, match="norm weights"):
        cpu.rmsnorm(torch.zeros(2, 32), torch.zeros(31), 1e-6)
    with pytest.raises(ValueError, match="gate values"):
        cpu.sigmoid_mul(torch.zeros(2, 32), torch.zeros(2, 31))
    with pytest.raises(ValueError, match="even"):
        cpu.silu_mul(torch.zeros(2, 31))


def test_indices_outside_their_tables_raise(cpu):
    weight = Packed(cpu.pack(torch.zeros(16, 32), "f32"), "f32", 16, 32)
    for bad in (-1, 16):
        with pytest.raises(ValueError, match="vocabulary"):
            cpu.embedding(torch.tensor([bad], dtype=torch.int32), weight)
    x, one = torch.zeros(1, 32), torch.ones(1, 1)
    with pytest.raises(ValueError, match="address table"):
        cpu.experts(
            x, torch.tensor([[2]], dtype=torch.int32), one, torch.ones(2, dtype=torch.int64), ExpertShape(32, 16, "f32")
        )
    with pytest.raises(ValueError, match="no address"):
        cpu.experts(
            x,
            torch.tensor([[1]], dtype=torch.int32),
            one,
            torch.zeros(2, dtype=torch.int64),
            ExpertShape(32, 16, "f32"),
        )
    with pytest.raises(ValueError, match="choose"):
        cpu.route(torch.zeros(1, 4), 5, True)


def test_batches_that_point_outside_the_arena_raise(cpu, make_arena):
    arena = make_arena(1, 32, 16, 2 * 2 * 16 * 8 * 4, 256, 1)
    k = torch.zeros(4, 1, 8)
    heads, row = Heads(1, 1, 8, 8, torch.zeros(40, 4), torch.zeros(40, 4)), torch.zeros(4, 24)
    with pytest.raises(ValueError, match="past the sequence's pages"):
        cpu.place_heads(arena.batch({0: (30, 4)}), 0, row, heads)
    with pytest.raises(ValueError, match="rotary table"):
        cpu.place_heads(
            arena.batch({0: (12, 4)}), 0, row, replace(heads, cos=torch.zeros(15, 4), sin=torch.zeros(15, 4))
        )
    with pytest.raises(ValueError, match="do not fit in 24 columns"):
        cpu.place_heads(arena.batch({0: (0, 4)}), 0, row, replace(heads, key_column=9))
    uneven = arena.batch({0: (0, 4)}, "bf16")
    uneven.page_tokens = 24
    with pytest.raises(ValueError, match="a multiple of 16"):
        cpu.attention(uneven, 0, k, 1, 1.0)
    with pytest.raises(ValueError, match="an even number"):
        cpu.attention(arena.batch({0: (0, 4)}, "bf16"), 0, torch.zeros(4, 1, 7), 1, 1.0)
    bad = arena.batch({0: (0, 4)})
    bad.page_offsets = bad.page_offsets + arena.data.numel()
    with pytest.raises(ValueError, match="outside the arena"):
        cpu.attention(bad, 0, k, 1, 1.0)
    bad = arena.batch({0: (0, 4)})
    bad.states = torch.full_like(bad.states, arena.data.numel() - 8)
    with pytest.raises(ValueError, match="outside the arena"):
        cpu.conv(bad, 0, torch.zeros(4, 8), torch.zeros(8, 4), 0)
    with pytest.raises(ValueError, match="past its sequence's rows"):
        cpu.conv(arena.batch({0: (0, 4)}, snapshots=[(0, 5)]), 0, torch.zeros(4, 8), torch.zeros(8, 4), 0)
    with pytest.raises(ValueError, match="linear layer"):
        cpu.conv(arena.batch({0: (0, 4)}), 1, torch.zeros(4, 8), torch.zeros(8, 4), 0)
    with pytest.raises(ValueError, match="rows"):
        cpu.attention(arena.batch({0: (0, 4)}), 0, torch.zeros(5, 1, 8), 1, 1.0)


def test_thread_count_is_bounded_and_settable(cpu):
    with pytest.raises(ValueError, match="threads"):
        cpu.set_threads(0)
    cpu.set_threads(3)
    from engine.kernels.cpu import thread_count

    assert thread_count() == 3


def test_the_environment_chooses_the_instruction_set_and_a_wrong_name_is_an_error():
    code = "from engine.kernels.cpu import isa; print(isa())"
    env = {**os.environ, "FT_ISA": "avx2"}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "avx2"
    env["FT_ISA"] = "sse9"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode != 0 and "sse9" in done.stderr
