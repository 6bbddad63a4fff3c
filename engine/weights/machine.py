"""How fast this machine reads weights and multiplies: from what `ft bench bw` has kept, else from a measurement of a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine import kernels
from engine.device.cpu import CpuDevice
from engine.errors import Unsupported
from engine.experts.profile import Profiles
from engine.kernels.contract import ExpertShape, Ops, Packed
from engine.memory.hardware import physical_cores
from engine.weights.convert import packing_ops
from engine.weights.ftw import aligned_buffer

DECODE_SHARE = 0.8  # of what a plain reader gets, when nothing better is known
_BUFFER_BYTES = 256 << 20
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Speeds:
    """`read` bytes per second of a plain reader on all cores; `flops_per_second` of a matrix product at prefill size."""

    read: float
    flops_per_second: float
    profiles: Profiles = field(repr=False)

    def bytes_per_second(self, shape: ExpertShape) -> tuple[float, str]:
        """At which weights of such experts are multiplied in decode, and where that is known from: "profile" or "guess"."""
        found = self.profiles.find(shape, CpuDevice())
        return (found.host, "profile") if found is not None else (DECODE_SHARE * self.read, "guess")

    @property
    def source(self) -> str:
        """In words."""
        return f"{self.read / 1e9:.1f} GB/s of memory reads and {self.flops_per_second / 1e9:.0f} GFLOP/s, measured now"

    def to_json(self) -> dict[str, Any]:
        return {"read_bytes_per_s": round(self.read), "flops_per_s": round(self.flops_per_second)}


def measure(profiles_dir: Path | None) -> Speeds:
    """Takes about a second; profiles of another machine are ignored."""
    ops = packing_ops()
    ops.set_threads(physical_cores())
    return Speeds(_read_rate(), _product_rate(ops), Profiles(profiles_dir))


def _read_rate() -> float:
    memory = aligned_buffer(_BUFFER_BYTES)
    memory.fill_(1)
    try:
        kernels.get("cpu")
    except (ImportError, Unsupported):
        return _BUFFER_BYTES / _best(lambda: memory.view(torch.int64).sum())
    from engine.kernels import _cpu

    return _BUFFER_BYTES / _best(lambda: _cpu.read_loop(memory.data_ptr(), memory.numel()))


def _product_rate(ops: Ops) -> float:
    n, k, rows = 2048, 2048, 64
    weight = Packed(ops.pack(torch.randn(n, k), "bf16"), "bf16", n, k)
    x = torch.randn(rows, k)
    return 2 * n * k * rows / _best(lambda: ops.linear(x, weight))


def _best(run: Callable[[], object]) -> float:
    """Seconds of the quickest round: what else runs on the machine only takes away."""
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
