"""Check settings, engine, models and agents; change nothing"""

from __future__ import annotations

import argparse

from ftagent.checks import run_checks, run_probe
from ftagent.context import Context
from ftagent.errors import UsageError
from ftagent.output import print_json

_COLOURS = {"OK": "green", "WARN": "yellow", "FAIL": "red", "SKIP": "dim"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="NAME", help="only this agent, and it must be there")
    parser.add_argument(
        "--probe", action="store_true", help="start the agent for some seconds and compare what it sends with its card"
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as failures")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """0 all good (warnings too), 1 at least one failure."""
    if args.probe and args.agent is None:
        raise UsageError("--probe starts one agent.", "Say which: ft doctor --agent NAME --probe")
    checks = list(run_checks(context, args.agent))
    if args.probe:
        checks += run_probe(context, args.agent)
    if args.json:
        print_json({"schema": "ft.doctor/1", "checks": [check.json() for check in checks]})
    else:
        style = context.out
        width = max(len(check.id) for check in checks) + 2
        for check in checks:
            print(f"{style(check.status.ljust(5), _COLOURS[check.status])} {check.id.ljust(width)}{check.text}")
            if check.fix and check.status in ("WARN", "FAIL", "SKIP"):
                print(f"      {' ' * width}{check.fix}")
    bad = ("FAIL", "WARN") if args.strict else ("FAIL",)
    return 1 if any(check.status in bad for check in checks) else 0
