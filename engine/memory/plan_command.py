"""`engine plan`: the start-up plan of a model on the command line. Torch-free."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from engine.errors import FtError, NotFound
from engine.memory.pinning import Pinnable, pinnable
from engine.memory.plan import Plan, Settings, size_text
from engine.memory.planner import plan_model
from engine.memory.running import running
from engine.settings import SettingsError, add_flags, resolve_values
from engine.weights.manifest import load_manifest


def main(argv: list[str]) -> int:
    """Print the plan. Returns 0 when it fits, 5 when not or when the model is broken, 3 when absent, 2 for a bad flag."""
    args = _parser().parse_args(argv)
    try:
        values = resolve_values(vars(args), os.environ, ("model",))
        model, models_dir = values["model"], values["models_dir"] or Path()
        directory = Path(model) if "/" in model else models_dir / model
        if not directory.is_dir():
            raise NotFound(f"There is no model {model!r} in {models_dir}.", "ft models ls")
        manifest = load_manifest(directory)
        profiles, device = values["profiles_dir"], values["device"]
        beside = running(values["max_running_requests"], profiles, manifest.name, manifest.geometry, device)
        settings = Settings(
            kv_tokens=values["kv"],
            kv_dtype=values["kv_dtype"],
            moe_backend=values["moe_backend"],
            moe_slots=values["moe_slots"],
            device=device,
            host_memory=values["host_memory"],
            device_memory=values["device_memory"],
            max_running=beside.requests,
            max_running_from=beside.source,
            chunk_tokens=values["chunk_tokens"],
            preset=values["preset"],
        )
        made = plan_model(directory, settings)
    except FtError as error:
        if args.json:
            print(json.dumps({"error": {"code": error.code, "message": error.message, "fix": error.hint}}))
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return 3 if isinstance(error, NotFound) else 2 if isinstance(error, SettingsError) else 5
    pin = pinnable(made.tenants["bank"] or made.tenants["experts"] or made.tenants["dense"])
    print(json.dumps({**made.to_json(), "pin": pin.to_json()}) if args.json else _table(made, pin))
    if not made.fits and not args.json:
        print("\n".join([made.verdict, *made.ways_out]), file=sys.stderr)
    return 0 if made.fits else 5


def _table(made: Plan, pin: Pinnable) -> str:
    rows = [f"{name:<12}{size_text(size):>12}" for name, size in made.tenants.items() if size]
    rows += [
        f"{'total':<12}{size_text(made.total_bytes):>12}",
        f"{'available':<12}{size_text(made.available_bytes):>12}",
        f"{'pinnable':<12}{size_text(pin.bytes):>12}  of {size_text(pin.asked_bytes)} that a card's copies would need",
        f"{'at once':<12}{made.max_running:>12}  requests ({made.max_running_from})",
    ]
    return "\n".join([*rows, *([made.verdict] if made.fits else [])])  # a refusal is told on the error stream


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="engine plan", description="What serving a model takes, and whether it fits.")
    add_flags(parser)  # all that `serve` takes, so that one line serves both; what needs no memory changes nothing
    parser.add_argument("--json", action="store_true")
    return parser
