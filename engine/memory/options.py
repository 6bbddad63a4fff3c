"""What is asked of a run beside sizes. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ACTIVATIONS = ("auto", "f32", "bf16")


@dataclass(frozen=True, slots=True)
class Options:
    """`activations`: precision of matrix inputs; auto: the fastest. Bandwidths, in 10^9 bytes/s, are the emulated
    device's; `profiles` is where measured ones are kept. `backend` was found by an earlier start of the same engine, and is not
    sought again where the plan leaves the choice."""

    activations: str = "f32"
    emulate_fill_gbs: float | None = None
    emulate_host_gbs: float | None = None
    profiles: Path | None = None
    backend: str | None = None
