"""Measure how much of a session's context is computed again, and how much before it is asked for"""

from __future__ import annotations

import argparse

from ftagent.context import Context

PASS_THROUGH = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft bench prefix [--json] [--quick] [--only NAME] [--rate N] [--traces DIR]"
    parser.epilog = (
        "examples:\n"
        "  ft bench prefix                   token-exact sessions through the real scheduler and caches\n"
        "  ft bench prefix --only append     one of them\n"
        "  ft bench prefix --json            rows for programs\n"
    )
    parser.add_argument("what", choices=("prefix",))


def run(args: argparse.Namespace, context: Context) -> int:
    from pathlib import Path

    import harnesses
    from ftagent.engine_command import run_engine_tool

    folder = Path(str(harnesses.__file__)).parent
    return run_engine_tool(context.env, "bench", args.what, *args.rest, "--declarations", str(folder))
