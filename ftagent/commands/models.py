"""List, pull, import and verify models"""

from __future__ import annotations

import argparse

from ftagent.context import Context

PASS_THROUGH = True
ACTIONS = ("ls", "show", "pull", "import", "verify", "synth", "tiny-hybrid")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft models ls|show|pull|import|verify|synth|tiny-hybrid [arguments]"
    parser.epilog = (
        "examples:\n"
        "  ft models ls                                 what is here (--json)\n"
        "  ft models pull smollm2-moe                   make the default model\n"
        "  ft models import ./checkpoint --name mine    convert a safetensors folder\n"
    )
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--models-dir", metavar="DIR", help="default: ft's own data folder")


def run(args: argparse.Namespace, context: Context) -> int:
    from ftagent.engine_command import run_engine_tool
    from ftagent.paths import ensure

    settings = context.settings({"models_dir": args.models_dir})
    models_dir = context.models_dir(settings)
    if args.action in ("pull", "import", "synth", "tiny-hybrid"):
        ensure(models_dir.resolve())  # may be a link to a larger disk
    return run_engine_tool(context.env, "models", args.action, *args.rest, "--models-dir", str(models_dir))
