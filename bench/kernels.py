"""Kernel speed against this machine's own limits: `python bench/kernels.py [--json] [--quick] [--only PREFIX]`.

Routed experts at small batches are measured in GB/s of the weights a step needs, beside a plain reader of the same memory;
many tokens per expert in GFLOP/s, beside a bare loop of the multiply instruction that the kernels use. Both run on the same
threads, and samples of kernel and baseline alternate, so that a busy machine slows both; each row gives the medians and
their ratio. A bank is far larger than any cache, lies on 2 MiB pages where the system gives them, and every step routes to
other experts, as a decode step of one layer does: starting threads, activations, sums and imbalance count.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from engine.bench.rows import Row, row, show
from engine.kernels import _cpu, best_activations, get
from engine.kernels.contract import FORMATS, Batch, ExpertShape, Packed

HUGE = 2 << 20
SHAPE_A = (2048, 768, 128, 8)  # hidden, expert width, experts, top-k
BATCHES = (1, 2, 4, 8, 16)
CONTEXTS = (1024, 8192, 32768)
PARTS = ("experts", "gemm", "linear", "attention", "call", "manners")
QUICK_FORMATS = ("bf16", "q8_0", "mxfp4")
TOKENS = (8, 16, 32, 64)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    name: str,
    unit: str,
    amount: float,
    work: Callable[[], Any],
    base_amount: float,
    base: Callable[[], Any],
    samples: int,
) -> Row:
    """One row of `amount` per second of `work` and of its baseline, measured alternately, in units of 1e9."""
    work(), base()
    ours, theirs = [], []
    for _ in range(samples):
        ours.append(amount / seconds(work) / 1e9)
        theirs.append(base_amount / seconds(base) / 1e9)
    return row(name, unit, ours, theirs, threads=int(_cpu.thread_count()), activations=get("cpu").activations())


def huge(n_bytes: int) -> torch.Tensor:
    """Zeroed memory on 2 MiB pages where the system gives them."""
    memory = mmap.mmap(-1, n_bytes + HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE
    memory.madvise(mmap.MADV_HUGEPAGE, start, n_bytes // HUGE * HUGE)
    return whole[start : start + n_bytes]


class ExpertBank:
    """`experts` equal experts of one layer, each in its own memory."""

    def __init__(self, format: str, hidden: int, width: int, experts: int) -> None:
        ops = get("cpu")
        self.shape = ExpertShape(hidden, width, format)
        gate_up = ops.pack(torch.randn(2 * width, hidden) * hidden**-0.5, format)
        down = ops.pack(torch.randn(hidden, width) * width**-0.5, format)
        self.needed = gate_up.numel() + down.numel()  # bytes that a use of the expert reads
        self.data = huge(experts * self.shape.stride)
        for expert in self.data.view(experts, self.shape.stride):
            expert[: gate_up.numel()] = gate_up
            expert[self.shape.down_offset : self.shape.down_offset + down.numel()] = down
        self.addresses = self.data.data_ptr() + self.shape.stride * torch.arange(experts)


def routes(batch: int, experts: int, top_k: int, steps: int) -> Iterator[tuple[torch.Tensor, int]]:
    """(ids [batch, top_k], distinct experts) of consecutive steps; each row's choices are random and distinct."""
    generator = torch.Generator().manual_seed(batch)
    for _ in range(steps):
        ids = torch.rand(batch, experts, generator=generator).argsort(1)[:, :top_k].to(torch.int32).contiguous()
        yield ids, len(set(ids.flatten().tolist()))


def expert_rows(
    formats: Sequence[str], samples: int, batches: Sequence[int] = BATCHES, size: tuple[int, int, int, int] = SHAPE_A
) -> list[Row]:
    """`experts.<format>.b<batch>`: bytes of the distinct experts of a step per second, over a plain reader's."""
    ops, rows = get("cpu"), []
    hidden, width, experts, top_k = size
    for format in formats:
        bank = ExpertBank(format, hidden, width, experts)
        for batch in batches:
            x, weights = torch.randn(batch, hidden), torch.full((batch, top_k), 1 / top_k)
            plan = list(routes(batch, experts, top_k, max(2, 16 // batch)))

            def work(
                bank: ExpertBank = bank, x: torch.Tensor = x, weights: torch.Tensor = weights, plan: Any = plan
            ) -> None:
                for ids, _ in plan:
                    ops.experts(x, ids, weights, bank.addresses, bank.shape)

            amount = bank.needed * sum(distinct for _, distinct in plan)
            length = min(bank.data.numel(), max(256 << 20, amount))

            def base(bank: ExpertBank = bank, length: int = length) -> None:
                _cpu.read_loop(bank.data.data_ptr(), length)

            rows.append(compare(f"experts.{format}.b{batch}", "GB/s", amount, work, length, base, samples))
    return rows


def peak(count: int) -> tuple[float, Callable[[], Any]]:
    """(operations, loop) of the fastest multiply that the run's activations allow, on every thread."""
    threads = int(_cpu.thread_count())
    if get("cpu").activations() == "bf16" and _cpu.isa() == "avx512bf16":
        return 64.0 * count * threads, lambda: _cpu.dot_loop(count)
    return 32.0 * count * threads, lambda: _cpu.fma_loop(count)


def gemm_rows(
    formats: Sequence[str], samples: int, tokens: Sequence[int] = TOKENS, size: tuple[int, int, int, int] = SHAPE_A
) -> list[Row]:
    """`experts.gemm.<format>.m<tokens>`: a layer's experts with that many tokens each, over the multiply loop's peak."""
    ops, rows = get("cpu"), []
    hidden, width, experts, top_k = size
    flops, loop = peak(4_000_000)
    for format in formats:
        bank = ExpertBank(format, hidden, width, experts)
        for count in tokens:
            used = max(top_k, min(experts, 2048 // count // top_k * top_k))  # a chunk, not a whole prompt
            batch = count * used // top_k
            ids = torch.arange(batch * top_k, dtype=torch.int32).view(batch, top_k) % used
            x, weights = torch.randn(batch, hidden), torch.full((batch, top_k), 1 / top_k)

            def work(bank: ExpertBank = bank, x: Any = x, ids: Any = ids, weights: Any = weights) -> None:
                ops.experts(x, ids, weights, bank.addresses, bank.shape)

            amount = 2.0 * batch * top_k * 3 * hidden * width
            rows.append(compare(f"experts.gemm.{format}.m{count}", "GFLOP/s", amount, work, flops, loop, samples))
    return rows


def dense_rows(formats: Sequence[str], samples: int, tokens: Sequence[int] = (1, 32, 512)) -> list[Row]:
    """`linear.<format>.m<tokens>`: one [4096, 2048] matrix after the other; GB/s for one token, else GFLOP/s."""
    ops, rows, n, k = get("cpu"), [], 4096, 2048
    flops, loop = peak(4_000_000)
    for format in formats:
        one = ops.pack(torch.randn(n, k), format)
        count = (256 << 20) // one.numel()
        bank = huge(count * one.numel()).view(count, -1)
        bank[:] = one
        matrices = [Packed(data, format, n, k) for data in bank]
        for m in tokens:
            x, used = torch.randn(m, k), matrices[: max(1, len(matrices) // m)]

            def work(x: torch.Tensor = x, used: list[Packed] = used) -> None:
                for matrix in used:
                    ops.linear(x, matrix)

            def read(bank: torch.Tensor = bank) -> None:
                _cpu.read_loop(bank.data_ptr(), bank.numel())

            if m == 1:
                rows.append(compare(f"linear.{format}.m1", "GB/s", bank.numel(), work, bank.numel(), read, samples))
            else:
                amount = 2.0 * m * n * k * len(used)
                rows.append(compare(f"linear.{format}.m{m}", "GFLOP/s", amount, work, flops, loop, samples))
    return rows


def attention_rows(samples: int, contexts: Sequence[int] = CONTEXTS, page_tokens: int = 64) -> list[Row]:
    """`attention.<heads>x<key heads>x<dim>.<context>`: a step's one row over bf16 keys and values, layer after layer; GB/s of
    them, over a plain reader's."""
    ops, rows = get("cpu"), []
    none = torch.zeros(0, dtype=torch.int32)
    for heads, kv_heads, dim in ((32, 4, 128), (9, 3, 64)):
        for context in contexts:
            layer_bytes, pages = 4 * kv_heads * page_tokens * dim, context // page_tokens
            layers = max(1, (256 << 20) // (layer_bytes * pages))
            arena = huge(pages * layers * layer_bytes)
            arena.view(torch.bfloat16)[:] = 0.01
            batch = Batch(
                arena=arena, row_start=torch.tensor([0, 1], dtype=torch.int32),
                positions=torch.tensor([context - 1], dtype=torch.int32), start=torch.tensor([context - 1], dtype=torch.int32),
                page_offsets=(torch.randperm(pages) * layers * layer_bytes).view(1, pages), page_tokens=page_tokens,
                kv_dtype="bf16", states=torch.zeros(1, 0, dtype=torch.int64), snapshot_seq=none, snapshot_rows=none,
                snapshot_states=torch.zeros(0, 0, dtype=torch.int64),
            )  # fmt: skip
            q = torch.randn(1, heads, dim)

            def work(batch: Batch = batch, q: torch.Tensor = q, layers: int = layers, kv_heads: int = kv_heads) -> None:
                for layer in range(layers):
                    ops.attention(batch, layer, q, kv_heads, q.shape[2] ** -0.5)

            def read(arena: torch.Tensor = arena) -> None:
                _cpu.read_loop(arena.data_ptr(), arena.numel())

            name = f"attention.{heads}x{kv_heads}x{dim}.{context}"
            rows.append(compare(name, "GB/s", arena.numel(), work, arena.numel(), read, samples))
    return rows


def manner_rows(samples: int) -> list[Row]:
    """`busy.experts`: decode steps of a layer per second while another process burns one core, over those without it;
    `idle.pool`: milliseconds of processor time that the idle threads take per second."""
    ops, bank = get("cpu"), ExpertBank("mxfp4", 2048, 768, 64)
    x, weights = torch.randn(1, 2048), torch.full((1, 8), 1 / 8)
    plan = list(routes(1, 64, 8, 16))

    def rate(duration: float) -> float:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < duration:
            ops.experts(x, plan[steps % 16][0], weights, bank.addresses, bank.shape)
            steps += 1
        return steps / (time.perf_counter() - start)

    rate(0.2)
    busy, quiet, idle = [], [], []
    for _ in range(max(3, samples // 3)):
        quiet.append(rate(0.5))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
            try:
                os.sched_setaffinity(burner.pid, {max(os.sched_getaffinity(0))})
                rate(0.1)
                busy.append(rate(0.5))
            finally:
                burner.kill()
        start = time.process_time()
        time.sleep(0.5)
        idle.append((time.process_time() - start) / 0.5 * 1e3)
    return [row("busy.experts", "steps/s", busy, quiet), row("idle.pool", "ms/s", idle)]


def call_rows(samples: int) -> list[Row]:
    """Microseconds of a whole call of a tiny operation, beside torch allocating the same output."""
    ops, calls = get("cpu"), 2000
    x, w = torch.randn(1, 64), torch.randn(64)
    matrix = Packed(ops.pack(torch.randn(64, 64), "bf16"), "bf16", 64, 64)

    def microseconds(call: Callable[[], Any]) -> float:
        def work() -> None:
            for _ in range(calls):
                call()

        return seconds(work) / calls * 1e6

    rows = []
    works: dict[str, Callable[[], Any]] = {
        "call.rmsnorm": lambda: ops.rmsnorm(x, w, 1e-6),
        "call.linear.64x64": lambda: ops.linear(x, matrix),
    }
    for name, call in works.items():
        pairs = [(microseconds(call), microseconds(lambda: torch.empty(1, 64))) for _ in range(samples)]
        rows.append(row(name, "us", *zip(*pairs, strict=True)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="a JSON list of rows instead of a table")
    parser.add_argument("--quick", action="store_true", help="under a minute: three formats, fewer samples and sizes")
    parser.add_argument("--threads", type=int, help="threads of the pool; default: physical cores")
    parser.add_argument("--isa", help="avx2, avx512 or avx512bf16; default: the best")
    parser.add_argument("--activations", choices=["f32", "bf16"], default=best_activations())
    parser.add_argument("--formats", nargs="+", metavar="FORMAT", help="default: all")
    parser.add_argument("--parts", nargs="+", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    options = parser.parse_args()
    options.formats = options.formats or list(QUICK_FORMATS if options.quick else FORMATS)
    options.parts = options.parts or list(PARTS[:-1] if options.quick else PARTS)
    if options.threads:
        _cpu.set_threads(options.threads)
    if options.isa:
        _cpu.set_isa(options.isa)
    get("cpu").set_activations(options.activations)
    samples, batches, tokens = (3, (1,), (32,)) if options.quick else (11, BATCHES, TOKENS)
    parts: dict[str, Callable[[], list[Row]]] = {
        "experts": lambda: expert_rows(options.formats, samples, batches),
        "gemm": lambda: gemm_rows(options.formats, samples, tokens),
        "linear": lambda: dense_rows(options.formats, samples, (1, 32) if options.quick else (1, 32, 512)),
        "attention": lambda: attention_rows(samples, CONTEXTS[:2] if options.quick else CONTEXTS),
        "call": lambda: call_rows(samples),
        "manners": lambda: manner_rows(samples),
    }
    rows = [row for part in options.parts for row in parts[part]()]
    show(rows, options.json)


if __name__ == "__main__":
    main()
