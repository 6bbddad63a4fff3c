"""Kernel speed against this machine's own limits: `python bench/kernels.py [--json] [--quick]`.

GEMV (one token) is measured in GB/s of packed weights beside a plain memory reader, GEMM in GFLOP/s beside a bare loop of
fused multiply-adds, both on the same threads. Samples of kernel and baseline alternate, so that a busy machine slows both;
each row gives the medians and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from engine.kernels import _cpu, get
from engine.kernels.contract import FORMATS, Packed, packed_bytes

LANES = 16
HIDDEN, WIDTH = 2048, 2048


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
) -> dict[str, Any]:
    """One row: medians of `amount` per second of `work` and of its baseline, measured alternately, in units of 1e9."""
    work(), base()
    ours, theirs = [], []
    for _ in range(samples):
        ours.append(amount / seconds(work) / 1e9)
        theirs.append(base_amount / seconds(base) / 1e9)
    value, baseline = statistics.median(ours), statistics.median(theirs)
    return {
        "name": name, "value": round(value, 2), "unit": unit, "baseline": round(baseline, 2),
        "ratio": round(value / baseline, 3), "samples": samples,
    }  # fmt: skip


def gemv_rows(samples: int, total_bytes: int) -> list[dict[str, Any]]:
    """One token through matrices that together exceed every cache."""
    ops, rows = get("cpu"), []
    for format in FORMATS:
        size = packed_bytes(WIDTH, HIDDEN, format)
        count = total_bytes // size
        bank = torch.zeros(count * size, dtype=torch.uint8)
        one = ops.pack(torch.randn(WIDTH, HIDDEN), format)
        for i in range(count):
            bank[i * size : (i + 1) * size] = one
        matrices = [Packed(bank[i * size : (i + 1) * size], format, WIDTH, HIDDEN) for i in range(count)]
        x = torch.randn(1, HIDDEN)

        def work(matrices: list[Packed] = matrices, x: torch.Tensor = x) -> None:
            for matrix in matrices:
                ops.linear(x, matrix)

        def base(bank: torch.Tensor = bank) -> None:
            _cpu.read_loop(bank.data_ptr(), bank.numel())

        rows.append(compare(f"gemv.{format}", "GB/s", bank.numel(), work, bank.numel(), base, samples))
    return rows


def gemm_rows(samples: int) -> list[dict[str, Any]]:
    """Tokens that share one matrix."""
    ops, rows = get("cpu"), []
    fmas = 20_000_000
    for format in FORMATS:
        matrix = Packed(ops.pack(torch.randn(WIDTH, HIDDEN), format), format, WIDTH, HIDDEN)
        for tokens in (1, 8, 32, 64):
            x = torch.randn(tokens, HIDDEN)
            repeat = max(1, 64 // tokens)

            def work(matrix: Packed = matrix, x: torch.Tensor = x, repeat: int = repeat) -> None:
                for _ in range(repeat):
                    ops.linear(x, matrix)

            flops = 2.0 * tokens * HIDDEN * WIDTH * repeat
            peak = 2.0 * fmas * LANES * _cpu.thread_count()
            name = f"gemm.{format}.m{tokens}"
            rows.append(compare(name, "GFLOP/s", flops, work, peak, lambda: _cpu.fma_loop(fmas), samples))
    return rows


def call_rows(samples: int) -> list[dict[str, Any]]:
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
        value, baseline = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append(
            {
                "name": name, "value": round(value, 2), "unit": "us", "baseline": round(baseline, 2),
                "ratio": round(value / baseline, 3), "samples": samples,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="a JSON list of rows instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer samples over less memory")
    parser.add_argument("--threads", type=int, help="threads of the pool; default: physical cores")
    options = parser.parse_args()
    if options.threads:
        _cpu.set_threads(options.threads)
    samples, total = (5, 128 << 20) if options.quick else (15, 512 << 20)
    rows = gemv_rows(samples, total) + gemm_rows(samples) + call_rows(samples)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{_cpu.isa()}, {_cpu.thread_count()} threads")
    for row in rows:
        print("{name:24} {value:9.2f} {unit:8} baseline {baseline:9.2f}  ratio {ratio:6.3f}  n={samples}".format(**row))


if __name__ == "__main__":
    main()
