"""What to do about a plan that does not fit. A change of settings is offered only where the plan with it fits. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from engine.errors import FtError
from engine.memory.amounts import MIN_KV_TOKENS
from engine.memory.geometry import Geometry
from engine.memory.plan import Plan, Settings, size_text
from engine.memory.pools import aligned

MOST = 3
SMALL_MODEL = "smollm2-moe"
_USUAL = Settings()
_FLAGS = {  # fields of the settings, as flags spell them
    "kv_tokens": "--kv",
    "kv_dtype": "--kv-dtype",
    "moe_backend": "--moe-backend",
    "moe_slots": "--moe-slots",
    "device": "--device",
    "host_memory": "--host-memory",
    "device_memory": "--device-memory",
    "max_running": "--max-running-requests",
    "chunk_tokens": "--chunk-tokens",
    "preset": "--preset",
}
Arrange = Callable[[Settings], Plan]


def ways_out(made: Plan, geometry: Geometry, settings: Settings, asked: Settings, arrange: Arrange) -> tuple[str, ...]:
    """At most three things to do, the one that costs least first. `asked` is what the user gave, `settings` what follows from it;
    `arrange` plans other settings on the same machine."""

    def fits(changed: Settings) -> bool:
        try:
            return arrange(changed).fits
        except FtError:
            return False

    def command(note: str = "", **changes: Any) -> str:
        flags = replace(asked, **changes)
        words = []
        for name, flag in _FLAGS.items():  # also what goes back to the usual: so the cause is named
            value = getattr(flags, name)
            if value is not None and (_told(flags, name) or _told(asked, name)):
                words.append(f"{flag} {value}")
        return " ".join([f"ft serve --model {made.model}", *words, *([f"({note})"] if note else [])])

    ways = [
        command(note, **changes)
        for note, changes in _changes(made, geometry, settings, fits)
        if fits(replace(settings, **changes))
    ]
    host_short = made.total_bytes - made.available_bytes
    if host_short > 0 and (made.device_memory is None or made.device_bytes <= made.device_memory):
        ways.append(f"Free {size_text(host_short)}: close other programs, or raise {made.limited_by}.")
    if geometry.moe_layers and host_short > 0:
        ways.append(f"ft models convert {made.model} {made.model}-q4 --format q4_0 (4.5 bits per weight of an expert)")
    if made.model != SMALL_MODEL:
        ways.append(f"ft serve --model {SMALL_MODEL} (the small model that comes with ft)")
    return tuple(dict.fromkeys(ways))[:MOST]


def _told(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != getattr(_USUAL, name))


def _changes(
    made: Plan, geometry: Geometry, settings: Settings, fits: Callable[[Settings], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what it costs, changed settings) that may make it fit: first what was set far above the usual."""
    for name in ("max_running", "chunk_tokens"):
        usual = getattr(_USUAL, name)
        if getattr(settings, name) > usual:
            yield "", {name: usual}
    if settings.moe_slots is not None:
        yield "", {"moe_slots": None}
    if tokens := _most_kv(made, settings, fits):
        yield "", {"kv_tokens": tokens}
    if made.device_memory is not None:
        yield "", {"device_memory": made.device_bytes}
    if budget := _disk_budget(made, geometry, settings, fits):
        changes = {"host_memory": budget, "moe_backend": "auto", "moe_slots": None}
        yield "experts are read from disk as needed", changes
    if made.device == "cpu" and made.bank == "ram" and made.moe_slots > geometry.top_k:
        yield f"needs no slots, {size_text(made.tenants['experts'])}", {"moe_backend": "cpu", "moe_slots": None}


def _most_kv(made: Plan, settings: Settings, fits: Callable[[Settings], bool]) -> int:
    """The most KV tokens, in pages, with which it fits, if those are fewer than now; 0 where no number helps."""
    low, high = 0, made.kv_pages
    while high - low > 1:
        middle = (low + high) // 2
        if fits(replace(settings, kv_tokens=middle * made.page_tokens)):
            low = middle
        else:
            high = middle
    tokens = low * made.page_tokens
    return tokens if tokens >= MIN_KV_TOKENS else 0


def _disk_budget(made: Plan, geometry: Geometry, settings: Settings, fits: Callable[[Settings], bool]) -> int:
    """Bytes for expert slots beside everything else, if experts are read from disk; 0 when that would not fit either."""
    if made.device != "cpu" or made.bank != "ram" or made.available_bytes >= made.total_bytes:
        return 0
    least = geometry.top_k * aligned(geometry.expert_bytes)
    budget = made.available_bytes - made.total_bytes + made.tenants["bank"] + made.tenants["experts"]
    for _ in range(4):  # slots may need larger slabs, which cost the other tenants something
        if not least <= budget < geometry.bank_bytes:
            return 0
        if fits(replace(settings, host_memory=budget, moe_backend="auto", moe_slots=None)):
            return budget
        budget -= max(4 << 20, budget // 64)
    return 0
