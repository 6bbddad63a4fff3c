"""What the engine asks of the hardware that computes: memory of its own, a copy engine, and when work is done."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.device.clock import Clock


class InPlaceWork(Protocol):
    """Work on experts where they lie in host memory, beside whatever the device does."""

    def computed(self) -> None:
        """The kernels have returned."""

    def wait(self) -> tuple[float, float]:
        """Return when its results may be used; (start, end) by the device's clock."""


class Device(Protocol):
    """`name` as in --device; `identity` also tells its speed apart. `fast_tier`: whether it has memory that is faster for experts than the host's."""

    name: str
    identity: str
    clock: Clock
    fast_tier: bool

    def allocate(self, size_bytes: int) -> torch.Tensor:
        """Zeroed memory of the device as one uint8 tensor. Raises OSError when it is refused."""

    def copies(self, n: int, size_bytes: int) -> list[float] | None:
        """`n` copies of `size_bytes` into the device are asked for now and made one after the other: when the first begins
        and when each ends, [n + 1] by the device's clock; None: they take as long as they take."""

    def in_place(self, size_bytes: int, rows: int) -> InPlaceWork:
        """Reading `size_bytes` of experts in host memory for `rows` (row, expert) pairs begins now."""

    def computes(self, experts: int) -> None:
        """The device computes so many experts from its own memory, after what it was given before."""

    def synchronize(self) -> float:
        """Return when the device has done what it was given; when that was, by the device's clock."""
