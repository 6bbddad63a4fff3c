"""Routed experts against this machine's own limits: `python bench/experts.py [--json] [--quick]`.

Rows `experts.<format>.b<batch>`: bytes of expert weights per second for a batch of decoding sequences at shape A, beside a plain
reader of the same memory on 2 MiB pages. Rows `experts.gemm.<format>.m<tokens>`: GFLOP/s of prefill with that many tokens for
each expert, beside a bare loop of the multiply-add that the activation precision allows. Samples of both alternate.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import engine.kernels
from engine.bench.rows import Row, row, show
from engine.device.cpu import allocate_arena
from engine.kernels import _cpu
from engine.kernels.contract import FORMATS, ExpertShape, Ops, packed_bytes

HIDDEN, WIDTH, EXPERTS, TOP_K = 2048, 768, 128, 8
GEMM_EXPERTS = 16
BATCHES, TOKENS = (1, 2, 4, 8, 16), (8, 32, 64)
LANES = 16


class Bank:
    """The experts of one layer in one format, on large pages."""

    def __init__(self, ops: Ops, format: str) -> None:
        self.shape = ExpertShape(HIDDEN, WIDTH, format)
        self.memory = allocate_arena(EXPERTS * self.shape.stride)
        self.expert_bytes = packed_bytes(2 * WIDTH, HIDDEN, format) + packed_bytes(HIDDEN, WIDTH, format)
        gate_up = ops.pack(torch.randn(2 * WIDTH, HIDDEN) * HIDDEN**-0.5, format)
        down = ops.pack(torch.randn(HIDDEN, WIDTH) * WIDTH**-0.5, format)
        for expert in range(EXPERTS):
            at = self.memory[expert * self.shape.stride :]
            at[: gate_up.numel()] = gate_up
            at[self.shape.down_offset :][: down.numel()] = down
        self.addresses = self.memory.data_ptr() + torch.arange(EXPERTS) * self.shape.stride


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(work: Callable[[], Any], base: Callable[[], Any], samples: int) -> tuple[list[float], list[float]]:
    work(), base()
    pairs = [(seconds(work), seconds(base)) for _ in range(samples)]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def batch_rows(ops: Ops, bank: Bank, samples: int, batches: tuple[int, ...], facts: dict[str, Any]) -> list[Row]:
    made, generator = [], torch.Generator().manual_seed(0)
    for batch in batches:
        layers = max(1, 16 // batch)
        routed = [
            torch.stack([torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(batch)]).int()
            for _ in range(layers)
        ]
        amount = sum(ids.unique().numel() for ids in routed) * bank.expert_bytes
        x, weights = torch.randn(batch, HIDDEN), torch.full((batch, TOP_K), 1 / TOP_K)

        def work(routed: list[torch.Tensor] = routed, x: torch.Tensor = x, weights: torch.Tensor = weights) -> None:
            for ids in routed:
                ops.experts(x, ids, weights, bank.addresses, bank.shape)

        ours, base = alternate(work, lambda: _cpu.read_loop(bank.memory.data_ptr(), bank.memory.numel()), samples)
        read = bank.memory.numel()
        name = f"experts.{bank.shape.format}.b{batch}"
        made.append(row(name, "GB/s", [amount / s / 1e9 for s in ours], [read / s / 1e9 for s in base], **facts))
    return made


def gemm_rows(ops: Ops, bank: Bank, samples: int, counts: tuple[int, ...], facts: dict[str, Any]) -> list[Row]:
    bf16 = ops.activations() == "bf16" and bank.shape.format != "f32"
    loop, each = (_cpu.dot_loop, 4 * LANES) if bf16 else (_cpu.fma_loop, 2 * LANES)
    spins = 20_000_000
    made = []
    for tokens in counts:
        rows = tokens * GEMM_EXPERTS // TOP_K
        ids = ((torch.arange(rows)[:, None] * TOP_K + torch.arange(TOP_K)) % GEMM_EXPERTS).int()
        x, weights = torch.randn(rows, HIDDEN), torch.full((rows, TOP_K), 1 / TOP_K)

        def work(x: torch.Tensor = x, ids: torch.Tensor = ids, weights: torch.Tensor = weights) -> None:
            ops.experts(x, ids, weights, bank.addresses[:GEMM_EXPERTS], bank.shape)

        ours, base = alternate(work, lambda: loop(spins), samples)
        flops = 2.0 * 3 * HIDDEN * WIDTH * rows * TOP_K
        peak = float(spins) * each * _cpu.thread_count()
        name = f"experts.gemm.{bank.shape.format}.m{tokens}"
        made.append(row(name, "GFLOP/s", [flops / s / 1e9 for s in ours], [peak / s / 1e9 for s in base], **facts))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="a JSON list of rows instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer samples, one batch and one count of tokens")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--activations", choices=("auto", "f32", "bf16"), default="auto")
    parser.add_argument("--threads", type=int, help="of the pool; default: physical cores")
    args = parser.parse_args()
    ops = engine.kernels.get("cpu")
    if args.threads:
        ops.set_threads(args.threads)
    ops.set_activations(engine.kernels.best_activations() if args.activations == "auto" else args.activations)
    samples, batches, counts = (5, (1,), (32,)) if args.quick else (15, BATCHES, TOKENS)
    facts = {"threads": _cpu.thread_count(), "activations": ops.activations(), "isa": _cpu.isa()}
    rows: list[Row] = []
    for format in args.formats:
        bank = Bank(ops, format)
        rows += batch_rows(ops, bank, samples, batches, facts) + gemm_rows(ops, bank, samples, counts, facts)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
