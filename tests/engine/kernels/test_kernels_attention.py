from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.kernels import _cpu
from engine.kernels.contract import Batch, Heads, Ops
from engine.kernels.pages import as_kept, by_position

CASES = [  # heads, kv_heads, dim, kv, page_tokens
    (4, 4, 16, "f32", 16),
    (6, 2, 64, "f32", 20),
    (9, 3, 64, "bf16", 64),
    (4, 2, 24, "bf16", 64),
    (8, 1, 128, "bf16", 16),
    (4, 2, 24, "f32", 64),
    (2, 1, 256, "f32", 16),
]
LAYERS = 2


@pytest.fixture
def activations(request) -> Iterator[str]:
    before = _cpu.activations()
    _cpu.set_activations(request.param == "bf16")
    yield request.param
    _cpu.set_activations(before)


IN_BOTH = pytest.mark.parametrize("activations", ["f32", "bf16"], indirect=True)


def tolerance(activations: str, kv: str) -> dict[str, float]:
    """bf16 pairs round queries and probabilities to 8 bits each."""
    return {"rtol": 0.0, "atol": 0.02} if (activations, kv) == ("bf16", "bf16") else {"rtol": 1e-5, "atol": 2e-6}


def arena_for(make_arena, seqs, tokens, page_tokens, kv_heads, dim, kv):
    page_bytes = LAYERS * 2 * kv_heads * page_tokens * dim * (4 if kv == "f32" else 2)
    return make_arena(seqs, tokens, page_tokens, page_bytes, 64, 1)


def store(ops: Ops, batch: Batch, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
    """Puts keys and values [M, kv_heads, dim] into the batch's pages as they are."""
    unturned = torch.empty(int(batch.positions.max()) + 1, 0)
    heads = Heads(0, k.shape[1], k.shape[2], 0, unturned, unturned)
    ops.place_heads(batch, layer, torch.cat([k.flatten(1), v.flatten(1)], dim=1), heads)


@IN_BOTH
@pytest.mark.parametrize("heads,kv_heads,dim,kv,page_tokens", CASES)
def test_attention_equals_the_reference(cpu, reference, make_arena, activations, heads, kv_heads, dim, kv, page_tokens):
    """Three sequences of uneven length; the step mixes a chunk, a decode row and a fresh prompt."""
    torch.manual_seed(dim)
    arena = arena_for(make_arena, 3, 150, page_tokens, kv_heads, dim, kv)
    past = arena.batch({0: (0, 100), 1: (0, 41)}, kv)
    step = arena.batch({0: (100, 50), 1: (41, 1), 2: (0, 33)}, kv)
    for batch in (past, step):
        rows = batch.positions.numel()
        for layer in range(LAYERS):
            k, v = torch.randn(rows, kv_heads, dim), torch.randn(rows, kv_heads, dim)
            before = arena.data.clone()
            store(reference, batch, layer, k, v)
            expected = arena.data.clone()
            arena.data.copy_(before)
            store(cpu, batch, layer, k, v)
            assert torch.equal(arena.data, expected)
    for layer in range(LAYERS):
        q = torch.randn(step.positions.numel(), heads, dim)
        ours = cpu.attention(step, layer, q, kv_heads, dim**-0.5)
        theirs = reference.attention(step, layer, q, kv_heads, dim**-0.5)
        torch.testing.assert_close(ours, theirs, **tolerance(activations, kv))


@pytest.mark.parametrize(
    "activations,kv", [("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16")], indirect=["activations"]
)
def test_a_row_has_the_same_bits_in_any_chunk_batch_thread_count_and_instruction_set(
    each_way, make_arena, activations, kv
):
    """1,200 tokens cross two parts of the key grid, so that both the split and the unsplit way of visiting them run."""
    torch.manual_seed(3)
    tokens, heads, kv_heads, dim = 1200, 4, 2, 32
    arena = arena_for(make_arena, 2, tokens, 64, kv_heads, dim, kv)
    q = torch.randn(2, tokens, heads, dim)
    k, v = torch.randn(2, tokens, kv_heads, dim), torch.randn(2, tokens, kv_heads, dim)

    def run(ops) -> torch.Tensor:
        arena.data[: arena.spare].zero_()
        both = arena.batch({0: (0, tokens), 1: (0, tokens)}, kv)
        store(ops, both, 0, k.flatten(0, 1), v.flatten(0, 1))
        whole = ops.attention(both, 0, q.flatten(0, 1), kv_heads, 0.2).view(2, tokens, -1)
        for size, first in ((1, 1190), (1, 500), (7, 1100), (64, 0), (500, 0)):
            for at in range(first, tokens if size > 1 else first + 10, size):
                count = min(size, tokens - at)
                part = arena.batch({1: (at, count)}, kv)
                store(ops, part, 0, k[1, at : at + count].contiguous(), v[1, at : at + count].contiguous())
                out = ops.attention(part, 0, q[1, at : at + count].contiguous(), kv_heads, 0.2)
                assert torch.equal(out, whole[1, at : at + count]), (size, at)
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    "heads,kv_heads,dim,rotary,gap", [(1, 1, 16, 16, 0), (3, 1, 64, 64, 7), (4, 2, 80, 20, 320), (2, 2, 256, 64, 0)]
)
def test_heads_are_placed_as_by_the_reference(cpu, reference, make_arena, heads, kv_heads, dim, rotary, gap, normed):
    torch.manual_seed(dim)
    arena = arena_for(make_arena, 2, 60, 16, kv_heads, dim, "f32")
    batch = arena.batch({0: (40, 9), 1: (3, 1)})
    angles = torch.outer(torch.arange(50.0), 1e4 ** (-torch.arange(rotary // 2) * 2.0 / rotary))
    norms = [(torch.rand(dim) + 0.5, 1e-6), (torch.rand(dim) + 0.5, 1e-5)] if normed else [None, None]
    layout = Heads(heads, kv_heads, dim, heads * dim + gap, angles.cos(), angles.sin(), *norms)
    projected = torch.randn(10, layout.key_column + 2 * kv_heads * dim)
    before = arena.data.clone()
    theirs, stored = reference.place_heads(batch, 1, projected, layout), arena.data.clone()
    arena.data.copy_(before)
    ours = cpu.place_heads(batch, 1, projected, layout)
    close = {"rtol": 2e-6, "atol": 2e-6}
    torch.testing.assert_close(ours, theirs, **close)
    torch.testing.assert_close(arena.data.view(torch.float32), stored.view(torch.float32), **close)
    if not normed:
        assert torch.equal(ours[..., rotary:], projected[:, : heads * dim].view(10, heads, dim)[..., rotary:])


@IN_BOTH
@pytest.mark.parametrize("kv", ["f32", "bf16"])
@pytest.mark.parametrize("first", [19, 20])
def test_keys_after_a_row_do_not_reach_it_even_as_nan(cpu, make_arena, activations, kv, first):
    arena = arena_for(make_arena, 1, 40, 16, 1, 16, kv)
    batch = arena.batch({0: (0, 40)}, kv)
    k, v, q = torch.randn(40, 1, 16), torch.randn(40, 1, 16), torch.randn(40, 1, 16)
    store(cpu, batch, 0, k, v)
    clean = cpu.attention(batch, 0, q, 1, 0.25)
    k[first:], v[first:] = float("nan"), float("nan")
    store(cpu, batch, 0, k, v)
    poisoned = cpu.attention(batch, 0, q, 1, 0.25)
    assert torch.equal(poisoned[:first], clean[:first])
    assert poisoned[first:].isnan().all()


@IN_BOTH
@pytest.mark.parametrize("kv", ["f32", "bf16"])
@pytest.mark.parametrize("dim,page_tokens", [(24, 16), (64, 48), (80, 64)])
def test_what_lay_in_a_page_before_never_reaches_a_row(cpu, make_arena, activations, kv, dim, page_tokens):
    """Every step over a page full of NaN has the bits it has over one of zeros: chunks, decode, windows and other sequences."""
    torch.manual_seed(dim)
    tokens, heads, kv_heads = 600, 6, 2
    k, v = torch.randn(2, tokens, kv_heads, dim), torch.randn(2, tokens, kv_heads, dim)
    q, outs = torch.randn(2, tokens, heads, dim), []
    for nan in (False, True):
        arena = arena_for(make_arena, 2, tokens, page_tokens, kv_heads, dim, kv)
        arena.data.fill_(0xFF if nan else 0)
        for window in (0, 40):
            steps = [{0: (0, 37)}, {0: (37, 1), 1: (0, 500)}, {0: (38, 1), 1: (500, 1)}, {0: (39, 490)}, {0: (529, 1)}]
            for step in steps:
                batch = arena.batch(step, kv)
                picked = [torch.cat([t[s, at : at + n] for s, (at, n) in step.items()]) for t in (q, k, v)]
                store(cpu, batch, 1, *picked[1:])
                outs.append((nan, cpu.attention(batch, 1, picked[0], kv_heads, dim**-0.5, window)))
    clean, dirty = ([out for nan, out in outs if nan is wanted] for wanted in (False, True))
    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(clean, dirty, strict=True))


@pytest.mark.parametrize("dim", [24, 64])
def test_bf16_pages_hold_each_position_where_the_contract_says(cpu, make_arena, dim):
    arena = arena_for(make_arena, 1, 64, 32, 2, dim, "bf16")
    batch = arena.batch({0: (0, 64)}, "bf16")
    k, v = torch.randn(64, 2, dim).bfloat16(), torch.randn(64, 2, dim).bfloat16()
    store(cpu, batch, 1, k.float(), v.float())
    page = arena.data[int(batch.page_offsets[0, 1]) :].view(torch.bfloat16)[2 * 2 * 32 * dim :]
    keys, values = page[: 4 * 32 * dim].view(2, 2, 2, 16 * dim)  # of two heads, two blocks
    for slot, i in ((0, 0), (1, dim - 1), (6, 5), (15, 8)):
        at = [32 + slot, 48 + slot]
        assert keys[1].view(2, dim // 2, 16, 2)[:, i // 2, slot, i % 2].tolist() == k[at, 1, i].tolist()
        assert values[1].view(2, 8, dim, 2)[:, slot // 2, i, slot % 2].tolist() == v[at, 1, i].tolist()
    whole = page[: 4 * 32 * dim].view(2, 2, 32 * dim)
    vectors = by_position(whole, dim)
    assert torch.equal(vectors, torch.stack([k[32:], v[32:]]).transpose(1, 2))
    assert torch.equal(as_kept(vectors), whole)


@IN_BOTH
@pytest.mark.parametrize("window", [0, 1, 7, 64, 700])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_windows_and_sinks_equal_the_reference(cpu, reference, make_arena, activations, window, with_sinks):
    """A chunk that crosses parts of the key grid, and a row of decode whose window begins in a later part."""
    torch.manual_seed(window)
    heads, kv_heads, dim = 6, 2, 24
    arena = arena_for(make_arena, 2, 1300, 16, kv_heads, dim, "bf16")
    past = arena.batch({0: (0, 1000), 1: (0, 1290)}, "bf16")
    step = arena.batch({0: (1000, 60), 1: (1290, 1)}, "bf16")
    for batch in (past, step):
        rows = batch.positions.numel()
        store(cpu, batch, 0, torch.randn(rows, kv_heads, dim), torch.randn(rows, kv_heads, dim))
    q = torch.randn(61, heads, dim)
    sinks = torch.tensor([-40.0, -1.0, 0.0, 2.0, 9.0, 60.0]) if with_sinks else None
    ours = cpu.attention(step, 0, q, kv_heads, 0.3, window, sinks)
    theirs = reference.attention(step, 0, q, kv_heads, 0.3, window, sinks)
    torch.testing.assert_close(ours, theirs, **tolerance(activations, "bf16"))


@pytest.mark.parametrize("activations,kv", [("f32", "f32"), ("bf16", "bf16")], indirect=["activations"])
def test_a_windowed_row_has_the_same_bits_in_any_chunk_and_never_touches_pages_before_its_window(
    each_way, make_arena, activations, kv
):
    torch.manual_seed(4)
    tokens, heads, kv_heads, dim, window = 1100, 4, 2, 32, 100
    arena = arena_for(make_arena, 1, tokens, 16, kv_heads, dim, kv)
    q = torch.randn(tokens, heads, dim)
    k, v = torch.randn(tokens, kv_heads, dim), torch.randn(tokens, kv_heads, dim)
    sinks = torch.randn(heads)

    def run(ops) -> torch.Tensor:
        arena.data[: arena.spare].zero_()
        both = arena.batch({0: (0, tokens)}, kv)
        store(ops, both, 0, k, v)
        whole = ops.attention(both, 0, q, kv_heads, 0.2, window, sinks)
        for size, first in ((1, 1090), (1, 505), (33, 900)):
            for at in range(first, min(tokens, first + 100), size):
                count = min(size, tokens - at)
                part = arena.batch({0: (at, count)}, kv)
                gone = max(0, at + 1 - window) // 16
                part.page_offsets = part.page_offsets.clone()
                part.page_offsets[:, :gone] = 1 << 60
                out = ops.attention(part, 0, q[at : at + count].contiguous(), kv_heads, 0.2, window, sinks)
                assert torch.equal(out, whole[at : at + count]), (size, at)
        return whole

    first, *rest = each_way(run)
    assert all(torch.equal(first, other) for other in rest)
