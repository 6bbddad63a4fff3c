"""What a start-up plan says, and the pools it describes. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import DoesNotFit
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, Pools, SlotPool, StatePool, aligned
from engine.memory.presets import Tier

SCHEMA = "ft.engine-plan/1"
DEVICE_TENANTS = ("dense", "experts", "workspace", "kv", "state")


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for. None and "auto" mean: choose. Given sizes are honoured exactly or the plan does not fit."""

    kv_tokens: int | None = None
    kv_dtype: str | None = None
    moe_backend: str = "auto"
    moe_slots: int | None = None
    device: str = "cpu"
    host_memory: int | None = None  # bytes of RAM for experts; fewer than they take: they are read from disk as needed
    device_memory: int | None = None  # bytes on a device with memory of its own
    max_running: int = 8
    max_running_from: str = ""  # what that number comes from, for people
    chunk_tokens: int = 512
    checkpoint_bytes: int | None = None
    preset: str = "auto"  # how what is not given is chosen: a name in presets


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of every tenant at the start. `*_slabs` are arena leases; `kv_pages` excludes the sentinel page; `states` are the
    live ones, `checkpoints` the saved ones; `window_tokens` is the longest prompt plus output one request may have.

    `room_slabs` are further slabs of the arena that nobody has at the start and that no tenant's bytes count; `tier` is what
    KV and experts share, for sharing it out again.
    """

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
    moe_backend: str  # "auto": a choice is left, made by real decodes once loaded
    moe_slots: int
    device: str
    bank: str  # where all experts lie: "ram", "disk", or "none"
    slot_bytes: int
    slab_bytes: int
    kv_slabs: int
    state_slabs: int
    expert_slabs: int
    room_slabs: int
    tier: Tier
    preset: str
    max_running: int
    chunk_tokens: int
    tenants: dict[str, int]  # name -> bytes
    available_bytes: int
    limited_by: str
    host_memory: int | None = None
    device_memory: int | None = None
    ways_out: tuple[str, ...] = ()
    max_running_from: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(self.tenants.values())

    @property
    def device_bytes(self) -> int:
        """What lies on a device with memory of its own."""
        return sum(self.tenants[name] for name in DEVICE_TENANTS)

    @property
    def fits(self) -> bool:
        return self.shortfall_bytes == 0

    @property
    def shortfall_bytes(self) -> int:
        device = 0 if self.device_memory is None else self.device_bytes - self.device_memory
        return max(0, self.total_bytes - self.available_bytes, device)

    @property
    def slabs(self) -> int:
        """Of the start split."""
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
        if self.device_memory is not None and self.total_bytes <= self.available_bytes:
            need, have = size_text(self.device_bytes), size_text(self.device_memory)
            return f"{self.model} needs {need} on the device, which has {have}: {size_text(self.shortfall_bytes)} short"
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
    """Arena bookkeeping and pools of a plan, with the plan's start split as limits. Allocates no tensor memory."""
    limits = {"kv": made.kv_slabs, "state": made.state_slabs, "experts": made.expert_slabs}
    arena = Arena(made.slab_bytes, made.slabs + made.room_slabs, limits)
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
