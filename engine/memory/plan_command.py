"""`engine plan`: the start-up plan of a model on the command line. Torch-free."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine.errors import FtError, NotFound
from engine.memory.amounts import parse_bytes, parse_tokens
from engine.memory.plan import Plan, Settings, size_text
from engine.memory.planner import BACKENDS, DEVICES, KV_VALUE_BYTES, plan_model


def main(argv: list[str]) -> int:
    """Print the plan. Returns 0 when it fits, 5 when not or when the model is broken, 3 when absent."""
    args = _parser().parse_args(argv)
    try:
        directory = Path(args.model) if "/" in args.model else args.models_dir / args.model
        if not directory.is_dir():
            raise NotFound(f"There is no model {args.model!r} in {args.models_dir}.", "ft models ls")
        settings = Settings(
            kv_tokens=args.kv,
            kv_dtype=args.kv_dtype,
            moe_backend=args.moe_backend,
            moe_slots=args.moe_slots,
            device=args.device,
            host_memory=args.host_memory,
            device_memory=args.device_memory,
            max_running=args.max_running_requests,
            chunk_tokens=args.chunk_tokens,
        )
        made = plan_model(directory, settings)
    except FtError as error:
        if args.json:
            print(json.dumps({"error": {"code": error.code, "message": error.message, "fix": error.hint}}))
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return 3 if isinstance(error, NotFound) else 5
    print(json.dumps(made.to_json()) if args.json else _table(made))
    if not made.fits and not args.json:
        print("\n".join([made.verdict, *made.ways_out]), file=sys.stderr)
    return 0 if made.fits else 5


def _table(made: Plan) -> str:
    rows = [f"{name:<12}{size_text(size):>12}" for name, size in made.tenants.items() if size]
    rows += [
        f"{'total':<12}{size_text(made.total_bytes):>12}",
        f"{'available':<12}{size_text(made.available_bytes):>12}",
    ]
    return "\n".join([*rows, made.verdict])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="engine plan", description="What serving a model takes, and whether it fits.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--models-dir", type=Path, default=Path())
    parser.add_argument("--kv", type=parse_tokens, metavar="TOKENS")
    parser.add_argument("--kv-dtype", choices=sorted(KV_VALUE_BYTES))
    parser.add_argument("--moe-backend", choices=BACKENDS, default="auto")
    parser.add_argument("--moe-slots", type=int)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--host-memory", type=parse_bytes, metavar="BYTES")
    parser.add_argument("--device-memory", type=parse_bytes, metavar="BYTES")
    parser.add_argument("--max-running-requests", type=int, default=Settings().max_running)
    parser.add_argument("--chunk-tokens", type=int, default=Settings().chunk_tokens)
    parser.add_argument("--json", action="store_true")
    return parser
