"""The start-up plan: what goes where, and whether it fits, before any byte is loaded. Pure arithmetic, torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import BadRequest, Unsupported
from engine.memory.geometry import Geometry
from engine.memory.hardware import Hardware, read_hardware
from engine.memory.plan import Plan, Settings, size_text
from engine.memory.pools import aligned
from engine.memory.presets import PRESETS, Tier, share
from engine.memory.ways_out import ways_out

PAGE_TOKENS = (64, 32, 16)
MIN_SLAB_BYTES = 4 << 20  # large against a page, so that little of a slab is left over
RUNTIME_BYTES = 152 << 20  # interpreter, torch, tokenizer, threads, without mapped files: measured with 26 and 752 MiB
READING_BYTES = 14 << 20  # what reading a bank into RAM leaves behind, whatever its size
KV_SHARE = 2  # of what is left beside the weights in RAM, 1/2 is KV's; where that is few tokens, 3/4
CHECKPOINT_SHARE = 8  # and checkpoints at most 1/8
CHECKPOINTS_PER_REQUEST = 24  # sessions were seen to reach the reuse bound with 19 live ones
MIN_CHECKPOINTS = 4
KV_VALUE_BYTES = {"bf16": 2, "f32": 4}
BACKENDS = ("auto", "fused", "cpu", "offload", "hybrid")
SLOT_BACKENDS = ("offload", "hybrid")
DEVICES = ("cpu", "emulated")
ROOM_SHARE = 8  # of what the plan leaves, 7/8 may be taken later by hand


def plan(
    hardware: Hardware,
    geometry: Geometry,
    settings: Settings,
    model: str,
    kv_dtype: str = "bf16",
    rotary_share: float = 1.0,
) -> Plan:
    """The plan for `geometry` on `hardware`; `kv_dtype` is the model's own and yields to the setting. Positions are turned
    into `rotary_share` of a head's values.

    Never raises for lack of memory: look at `fits`. Raises BadRequest when a setting makes no sense at any size,
    Unsupported when it needs another device.
    """
    checked = _checked(settings, kv_dtype)
    made = _arrange(hardware, geometry, checked, model, rotary_share)
    if made.fits:
        return made

    def arrange(other: Settings) -> Plan:
        return _arrange(hardware, geometry, other, model, rotary_share)

    return replace(made, ways_out=ways_out(made, geometry, checked, settings, arrange))


def plan_model(directory: Path | str, settings: Settings, hardware: Hardware | None = None) -> Plan:
    """The plan for a model directory on this machine. Raises WeightsError when the directory is no whole model."""
    from engine.weights.config import read_config, rope_parameters, text_config
    from engine.weights.manifest import load_manifest, remedy

    manifest = load_manifest(directory)
    window = min(manifest.window_tokens or manifest.geometry.max_window_tokens, manifest.geometry.max_window_tokens)
    geometry = replace(manifest.geometry, max_window_tokens=window)
    rope = rope_parameters(text_config(read_config(manifest.path(manifest.config), remedy(manifest.directory))))
    share_of_head = float(rope["partial_rotary_factor"])
    here = hardware or read_hardware()
    return plan(here, geometry, settings, manifest.name, manifest.kv_dtype or "bf16", share_of_head)


def _checked(settings: Settings, kv_dtype: str) -> Settings:
    dtype = settings.kv_dtype or kv_dtype
    if dtype not in KV_VALUE_BYTES:
        raise BadRequest(f"kv dtype {dtype!r} is not known.", f"Use one of {', '.join(KV_VALUE_BYTES)}.")
    if settings.moe_backend not in BACKENDS:
        raise BadRequest(f"moe backend {settings.moe_backend!r} is not known.", f"Use one of {', '.join(BACKENDS)}.")
    if settings.device not in DEVICES:
        raise BadRequest(f"device {settings.device!r} is not known.", f"Use one of {', '.join(DEVICES)}.")
    if settings.preset not in PRESETS:
        raise BadRequest(f"preset {settings.preset!r} is not known.", f"Use one of {', '.join(PRESETS)}.")
    for name in ("kv_tokens", "moe_slots", "host_memory", "device_memory", "max_running", "chunk_tokens"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise BadRequest(f"{name} is {value}.", "Ask for 1 or more.")
    return replace(settings, kv_dtype=dtype)


def _arrange(hardware: Hardware, geometry: Geometry, settings: Settings, model: str, rotary_share: float) -> Plan:
    kv_dtype = settings.kv_dtype or "bf16"
    # without attention a page holds nothing, but the cache still counts tokens in pages
    token_bytes = max(1, geometry.kv_values_per_token * KV_VALUE_BYTES[kv_dtype])
    experts = _experts(geometry, settings)
    slot_bytes = aligned(geometry.expert_bytes) if experts.slots else 0
    cell_bytes = aligned(max(geometry.state_layer_bytes, default=0))
    slab_bytes = _round_up(max(MIN_SLAB_BYTES, aligned(PAGE_TOKENS[-1] * token_bytes), cell_bytes), slot_bytes or 4096)
    page_tokens = max(PAGE_TOKENS, key=lambda n: n * (slab_bytes // aligned(n * token_bytes)))
    page_bytes = aligned(page_tokens * token_bytes)
    state_bytes = len(geometry.state_layer_bytes) * cell_bytes

    def state_slabs(states: int) -> int:
        return _ceil(states * len(geometry.state_layer_bytes), slab_bytes // cell_bytes) if cell_bytes else 0

    def kv_slabs(tokens: int) -> int:
        return _ceil(_ceil(tokens, page_tokens) + 1, slab_bytes // page_bytes)

    live = settings.max_running if state_bytes else 0
    workspace = _workspace_bytes(geometry, settings, bool(experts.slots), rotary_share)
    bank = 0 if experts.bank == "disk" else geometry.bank_bytes
    beside = geometry.dense_bytes + workspace + state_slabs(live) * slab_bytes  # lies in the fast memory anyway
    runtime = RUNTIME_BYTES + (READING_BYTES if experts.bank == "ram" else 0)
    fast = hardware.available_bytes - bank - runtime - beside
    device_memory = None if settings.device == "cpu" else settings.device_memory
    if device_memory is not None:
        fast = min(fast, device_memory - beside)
    tier = Tier(
        slabs=max(0, fast) // slab_bytes,
        tokens_per_slab=slab_bytes // page_bytes * page_tokens,
        sentinel_tokens=page_tokens,
        slots_per_slab=slab_bytes // slot_bytes if slot_bytes else 0,
        experts=geometry.moe_layers * geometry.experts,
        slots_most=experts.slots if device_memory is None else experts.most,
        slots_least=geometry.top_k,
        layer_slots=geometry.experts,
        window_tokens=geometry.max_window_tokens,
        running=settings.max_running,
        kv_share=KV_SHARE if device_memory is None else 1,
    )
    kv_tokens, slots = share(settings.preset, tier, settings.kv_tokens, experts.slots if experts.fixed else None)
    expert_slabs = tier.expert_slabs(slots)
    fixed = {
        "dense": geometry.dense_bytes,
        "bank": bank,
        "experts": expert_slabs * slab_bytes,
        "workspace": workspace,
        "runtime": runtime,
    }
    left = max(0, hardware.available_bytes - sum(fixed.values()) - state_slabs(live) * slab_bytes)
    spare = min(left // CHECKPOINT_SHARE, left - kv_slabs(kv_tokens) * slab_bytes)
    checkpoints = _checkpoints(settings, state_bytes, live, max(0, spare))
    live_slabs, all_state_slabs = state_slabs(live), state_slabs(live + checkpoints)
    made = Plan(
        model=model,
        window_tokens=min(geometry.max_window_tokens, kv_tokens),
        kv_tokens=kv_tokens,
        kv_dtype=kv_dtype,
        kv_pages=_ceil(kv_tokens, page_tokens),
        page_tokens=page_tokens,
        page_bytes=page_bytes,
        state_layer_bytes=geometry.state_layer_bytes,
        states=live,
        checkpoints=checkpoints,
        moe_backend=experts.backend,
        moe_slots=slots,
        device=settings.device,
        bank=experts.bank,
        slot_bytes=slot_bytes,
        slab_bytes=slab_bytes,
        kv_slabs=kv_slabs(kv_tokens),
        state_slabs=all_state_slabs,
        expert_slabs=expert_slabs,
        room_slabs=0,
        tier=tier,
        preset=settings.preset,
        max_running=settings.max_running,
        max_running_from=settings.max_running_from,
        chunk_tokens=settings.chunk_tokens,
        tenants={
            **fixed,
            "kv": kv_slabs(kv_tokens) * slab_bytes,
            "state": live_slabs * slab_bytes,
            "checkpoints": (all_state_slabs - live_slabs) * slab_bytes,
        },
        available_bytes=hardware.available_bytes,
        limited_by=hardware.limited_by,
        host_memory=settings.host_memory,
        device_memory=device_memory,
    )
    return replace(made, room_slabs=_room(made, experts))


def _room(made: Plan, experts: _Experts) -> int:
    """Slabs beyond the plan that may be used later, by hand: up to what would have been shared out if nothing had been asked for,
    or where there are only pages, up to a window for each request. Address space, until then."""
    tier = made.tier
    if experts.slots:
        tokens, slots = share("auto", tier)
        slabs = tier.kv_slabs(tokens) + tier.expert_slabs(slots)
    else:
        slabs = tier.kv_slabs(tier.window_tokens * tier.running)
    free = (made.available_bytes - made.total_bytes) * (ROOM_SHARE - 1) // ROOM_SHARE
    if made.device_memory is not None:
        free = min(free, made.device_memory - made.device_bytes)
    return max(0, min(slabs - made.kv_slabs - made.expert_slabs, free // made.slab_bytes))


@dataclass(frozen=True, slots=True)
class _Experts:
    """`slots` is a wish unless they are `fixed`; a device's own memory is filled with up to `most`."""

    backend: str
    slots: int
    bank: str
    fixed: bool = False
    most: int = 0


def _experts(geometry: Geometry, settings: Settings) -> _Experts:
    """Where experts lie and how many slots they get.

    On a CPU whose bank is in RAM there is nothing to cache: experts run where they lie. Raises Unsupported when a backend
    asks for memory that another setting takes away.
    """
    if not geometry.moe_layers:
        return _Experts("none", 0, "none")
    backend, every = settings.moe_backend, geometry.moe_layers * geometry.experts
    asked = settings.moe_slots
    if settings.host_memory is not None and settings.host_memory < geometry.bank_bytes:
        return _from_disk(geometry, settings, settings.host_memory)
    if settings.device == "cpu":
        backend = "cpu" if backend == "auto" else backend
        if backend not in SLOT_BACKENDS:
            return _Experts(backend, 0, "ram")
        return _Experts(backend, asked or max(geometry.top_k, every // 4), "ram", asked is not None, every)
    if backend == "cpu":
        return _Experts(backend, 0, "ram")
    if backend == "fused":
        if asked not in (None, every):
            raise Unsupported(
                f"The backend 'fused' has a slot for each of {every} experts, not {asked}.",
                "Leave --moe-slots out, or use --moe-backend hybrid.",
            )
        return _Experts(backend, every, "ram", True, every)
    wish = asked or min(every, max(2 * geometry.experts, every // 4))
    return _Experts(backend, wish, "ram", asked is not None, every)


def _from_disk(geometry: Geometry, settings: Settings, budget: int) -> _Experts:
    needs = f"The experts take {size_text(geometry.bank_bytes)} and --host-memory gives {size_text(budget)}"
    if settings.device != "cpu":
        raise Unsupported(f"{needs}: a device's slots are filled from RAM.", "Give more, or use --device cpu.")
    if settings.moe_backend not in ("auto", "offload"):
        raise Unsupported(
            f"{needs}: the backend {settings.moe_backend!r} needs them all in RAM.", "Use --moe-backend offload."
        )
    most = budget // aligned(geometry.expert_bytes)
    slots = most if settings.moe_slots is None else settings.moe_slots
    if not geometry.top_k <= slots <= most:
        raise Unsupported(
            f"{needs}: room for {most} expert slots, not for {slots}."
            if slots > most
            else f"{needs}: {slots} expert slots, and one token needs {geometry.top_k}.",
            f"Give --host-memory {max(slots, geometry.top_k) * aligned(geometry.expert_bytes)} or more.",
        )
    return _Experts("offload", slots, "disk", settings.moe_slots is not None, most)


def _checkpoints(settings: Settings, state_bytes: int, live: int, share_bytes: int) -> int:
    if not state_bytes:
        return 0
    if settings.checkpoint_bytes is not None:
        return settings.checkpoint_bytes // state_bytes
    return max(MIN_CHECKPOINTS, min(live * CHECKPOINTS_PER_REQUEST, share_bytes // state_bytes))


def _workspace_bytes(geometry: Geometry, settings: Settings, tiered: bool, rotary_share: float) -> int:
    """Peak of one forward at full chunk size: activations of a layer, routed rows, logits, rotary tables."""
    rows = settings.chunk_tokens + settings.max_running
    hidden, top_k, width = geometry.hidden_size, max(1, geometry.top_k), geometry.expert_width
    row_values = (  # measured: what a forward of 128 to 2048 rows adds
        (24 if geometry.state_layer_bytes else 8) * hidden
        + 2 * top_k * width
        + 2 * geometry.kv_heads * geometry.head_dim
        + 2 * max(1, geometry.experts)
        + tiered * top_k * (2 * width + hidden)  # experts one after the other as they arrive, then added up
    )
    logits = (settings.max_running + 3) * geometry.vocab_size
    rotary = geometry.max_window_tokens * int(geometry.head_dim * rotary_share)
    return 4 * (rows * row_values + logits + rotary)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(a: int, b: int) -> int:
    return _ceil(a, b) * b
