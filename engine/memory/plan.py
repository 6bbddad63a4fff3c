"""What a start-up plan says, and the pools it describes. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import DoesNotFit
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, Pools, SlotPool, StatePool, aligned

SCHEMA = "ft.engine-plan/1"


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for. None and "auto" mean: choose. Given sizes are honoured exactly or the plan does not fit."""

    kv_tokens: int | None = None
    kv_dtype: str | None = None
    moe_backend: str = "auto"
    moe_slots: int | None = None
    max_running: int = 8
    chunk_tokens: int = 512
    checkpoint_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of every tenant. `*_slabs` are arena leases; `kv_pages` excludes the sentinel page; `states` are the live
    ones, `checkpoints` the saved ones; `window_tokens` is the longest prompt plus output one request may have."""

    model: str
    window_tokens: int
    kv_tokens: int
    kv_dtype: str
    kv_pages: int
    page_tokens: int
    page_bytes: int
    state_layer_bytes: tuple[int, ...]
    states: int
    checkpoints: int
    moe_backend: str
    moe_slots: int
    slot_bytes: int
    slab_bytes: int
    kv_slabs: int
    state_slabs: int
    expert_slabs: int
    max_running: int
    chunk_tokens: int
    tenants: dict[str, int]  # name -> bytes
    available_bytes: int
    limited_by: str
    ways_out: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(self.tenants.values())

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.available_bytes

    @property
    def shortfall_bytes(self) -> int:
        return max(0, self.total_bytes - self.available_bytes)

    @property
    def slabs(self) -> int:
        return self.kv_slabs + self.state_slabs + self.expert_slabs

    @property
    def state_bytes(self) -> int:
        """One recurrent state as it lies in the arena."""
        return len(self.state_layer_bytes) * aligned(max(self.state_layer_bytes, default=0))

    @property
    def checkpoint_bytes(self) -> int:
        return self.checkpoints * self.state_bytes

    @property
    def verdict(self) -> str:
        """One sentence."""
        need, have = size_text(self.total_bytes), size_text(self.available_bytes)
        if self.fits:
            return f"{self.model} fits: {need} of {have}, window {self.window_tokens} tokens"
        return (
            f"{self.model} needs {need}, and {self.limited_by} leaves {have}: {size_text(self.shortfall_bytes)} short"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            **asdict(self),
            "total_bytes": self.total_bytes,
            "fits": self.fits,
            "shortfall_bytes": self.shortfall_bytes,
            "verdict": self.verdict,
        }

    def require(self) -> Plan:
        """Self when it fits. Raises DoesNotFit with the shortfall and the ways out."""
        if not self.fits:
            raise DoesNotFit(f"{self.verdict}.", " Or: ".join(self.ways_out))
        return self


def build_pools(made: Plan) -> Pools:
    """Arena bookkeeping and pools of a plan, with the plan's static split as limits. Allocates no tensor memory."""
    limits = {"kv": made.kv_slabs, "state": made.state_slabs, "experts": made.expert_slabs}
    arena = Arena(made.slab_bytes, made.slabs, limits)
    return Pools(
        arena,
        PagePool(arena, made.page_bytes),
        made.page_tokens,
        StatePool(arena, made.state_layer_bytes) if made.state_layer_bytes else None,
        SlotPool(arena, made.slot_bytes) if made.moe_slots else None,
    )


def size_text(size_bytes: int) -> str:
    """For people: "1.5 GiB"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} KiB"
