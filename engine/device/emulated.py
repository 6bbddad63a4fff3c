"""A device emulated in memory: a second allocation, a copy engine with a bandwidth, and a host memory bus both share.

Real kernels compute real numbers; what is emulated is time. Copies into the device take `fill` bytes/s of the host's bus;
in-place work reads through the same bus and gets what running copies leave of `host` bytes/s. Every wait is until a
deadline computed from these rates, so that results are as exact as sleeping is, as long as the real work is quicker.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import torch

from engine.device.clock import Clock
from engine.device.cpu import allocate_arena

_LEFT_OVER = 1e-3  # of the bus at least, for in-place work beside copies that would take it all


@dataclass(frozen=True, slots=True)
class Speeds:
    """`fill`, `host` in bytes/s; `expert_s`: device time per expert it computes; `row_s`: host time per (row, expert) that
    in-place arithmetic needs, where that is more than reading the expert takes."""

    fill: float
    host: float
    expert_s: float = 0.0
    row_s: float = 0.0


class EmulatedDevice:
    """Thread-safe. `throttle` changes speeds while serving: copies and work that begin later have the new ones."""

    name = "emulated"
    fast_tier = True

    def __init__(self, speeds: Speeds, clock: Clock | None = None) -> None:
        self.speeds, self.clock = speeds, clock or Clock()
        self.identity = f"emulated {speeds.fill:g} {speeds.host:g}"
        self._lock = threading.Lock()
        self._copying_until = 0.0
        self._computing_until = 0.0

    def throttle(self, **changes: float) -> None:
        """Change fields of Speeds, keep the others."""
        self.speeds = replace(self.speeds, **changes)

    def allocate(self, size_bytes: int) -> torch.Tensor:
        """See Device."""
        return allocate_arena(size_bytes)

    def copies(self, n: int, size_bytes: int) -> list[float]:
        """See Device."""
        each = size_bytes / self.speeds.fill
        with self._lock:
            begin = max(self.clock.now(), self._copying_until)
            self._copying_until = begin + n * each
        return [begin + i * each for i in range(n + 1)]

    def in_place(self, size_bytes: int, rows: int) -> _BusRead:
        """See Device."""
        speeds, start = self.speeds, self.clock.now()
        shared = max(0.0, self._copying_until - start)
        beside = max(speeds.host - speeds.fill, speeds.host * _LEFT_OVER)
        if size_bytes <= beside * shared:
            reading = size_bytes / beside
        else:
            reading = shared + (size_bytes - beside * shared) / speeds.host
        return _BusRead(self.clock, start, start + max(reading, rows * speeds.row_s))

    def computes(self, experts: int) -> None:
        """See Device."""
        self._computing_until = max(self._computing_until, self.clock.now()) + experts * self.speeds.expert_s

    def synchronize(self) -> float:
        """See Device."""
        self.clock.sleep_until(self._computing_until)
        return self._computing_until


@dataclass(frozen=True, slots=True)
class _BusRead:
    clock: Clock
    start: float
    end: float

    def computed(self) -> None:
        """See InPlaceWork."""

    def wait(self) -> tuple[float, float]:
        """See InPlaceWork."""
        self.clock.sleep_until(self.end)
        return self.start, self.end
