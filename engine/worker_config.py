"""What the front decides for its worker, as flags and as one object."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from engine.memory.amounts import parse_bytes, parse_tokens
from engine.memory.hardware import physical_cores
from engine.memory.options import ACTIVATIONS, Options
from engine.memory.plan import Settings
from engine.memory.planner import BACKENDS, DEVICES, KV_VALUE_BYTES
from engine.memory.presets import NAMES as PRESETS


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What the front decides for its worker. `nonce` names the engine instance in our hello."""

    model_dir: Path
    socket: Path
    threads: int
    settings: Settings
    options: Options = field(default_factory=Options)
    nonce: str = ""
    hibernate_dir: Path | None = None
    hibernate_bytes: int = 0
    throttle_tokens_per_s: float | None = None


def parse_config(argv: list[str]) -> WorkerConfig:
    """Flags as the front gives them. Exits with 2 on wrong ones, as argparse does."""
    parser = argparse.ArgumentParser(prog="engine worker", description="Started by `engine serve`, not by people.")
    defaults = Settings()
    parser.add_argument("--model", type=Path, required=True, help="model directory")
    parser.add_argument("--runtime-dir", type=Path, required=True)
    parser.add_argument("--socket", type=Path, help="default: worker.sock in the runtime directory")
    parser.add_argument("--kv", type=parse_tokens)
    parser.add_argument("--preset", choices=PRESETS, default=defaults.preset)
    parser.add_argument("--kv-dtype", choices=sorted(KV_VALUE_BYTES))
    parser.add_argument("--moe-backend", choices=BACKENDS, default=defaults.moe_backend)
    parser.add_argument("--backend-found", choices=BACKENDS, help="what a worker before this one found for auto")
    parser.add_argument("--moe-slots", type=int)
    parser.add_argument("--device", choices=DEVICES, default=defaults.device)
    parser.add_argument("--host-memory", type=parse_bytes)
    parser.add_argument("--device-memory", type=parse_bytes)
    parser.add_argument("--activations", choices=ACTIVATIONS, default="auto")
    parser.add_argument("--emulate-fill-gbs", type=float)
    parser.add_argument("--emulate-host-gbs", type=float)
    parser.add_argument("--profiles-dir", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--max-running-requests", type=int, default=defaults.max_running)
    parser.add_argument("--chunk-tokens", type=int, default=defaults.chunk_tokens)
    parser.add_argument("--hibernate-dir", type=Path, help="where prefixes are kept on disk; default: nowhere")
    parser.add_argument("--hibernate-bytes", type=int, default=0)
    parser.add_argument("--throttle-tokens-per-s", type=float)
    parser.add_argument("--nonce", default="")
    args = parser.parse_args(argv)
    return WorkerConfig(
        model_dir=args.model,
        socket=args.socket or args.runtime_dir / "worker.sock",
        threads=args.threads or physical_cores(),
        nonce=args.nonce,
        hibernate_dir=args.hibernate_dir,
        hibernate_bytes=args.hibernate_bytes,
        throttle_tokens_per_s=args.throttle_tokens_per_s,
        options=Options(
            args.activations, args.emulate_fill_gbs, args.emulate_host_gbs, args.profiles_dir, args.backend_found
        ),
        settings=Settings(
            kv_tokens=args.kv,
            kv_dtype=args.kv_dtype,
            moe_backend=args.moe_backend,
            moe_slots=args.moe_slots,
            device=args.device,
            host_memory=args.host_memory,
            device_memory=args.device_memory,
            max_running=args.max_running_requests,
            chunk_tokens=args.chunk_tokens,
            preset=args.preset,
        ),
    )
