"""Check settings, engine, models and agents; fix what can be fixed, when asked"""

from __future__ import annotations

import argparse
from typing import Any

from ftagent.checks import Check, run_checks, run_probe
from ftagent.context import Context
from ftagent.doctor import fixing
from ftagent.errors import UsageError
from ftagent.output import note, print_json

_COLOURS = {"OK": "green", "WARN": "yellow", "FAIL": "red", "SKIP": "dim"}
EXAMPLES = """\
examples:
  ft doctor                    look, change nothing
  ft doctor --agent claude     also what its files would do to a launch
  ft doctor --fix              asks before each fix, runs it, looks again
  ft doctor --fix --yes        for scripts; exit 1 when something is still wrong
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--agent", metavar="NAME", help="only this agent, and it must be there")
    parser.add_argument(
        "--probe", action="store_true", help="start the agent for some seconds and compare what it sends with its card"
    )
    parser.add_argument("--fix", action="store_true", help="ask before each fix, run it, and look again")
    parser.add_argument("-y", "--yes", action="store_true", help="with --fix: do not ask")
    parser.add_argument("--strict", action="store_true", help="warnings count as failures")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """0 all good (warnings too), 1 at least one failure; with --fix of what is left afterwards."""
    if args.probe and args.agent is None:
        raise UsageError("--probe starts one agent.", "Say which: ft doctor --agent NAME --probe")
    if args.yes and not args.fix:
        raise UsageError("--yes belongs to --fix.", "ft doctor --fix --yes")
    if args.fix and not args.yes and not context.may_ask:
        raise UsageError("--fix asks before each fix, and nobody can be asked here.", "ft doctor --fix --yes")
    checks = _look(args, context)
    fixed: list[dict[str, Any]] = []
    if args.fix:
        if not args.json:
            _show(checks, context)
        fixed = _fix(checks, args, context)
        checks = _look(args, context) if fixed else checks
    if args.json:
        more = {"fixed": fixed} if args.fix else {}
        print_json({"schema": "ft.doctor/1", "checks": [check.json() for check in checks], **more})
    elif fixed or not args.fix:
        _show(checks, context)
    bad = ("FAIL", "WARN") if args.strict else ("FAIL",)
    return 1 if any(check.status in bad for check in checks) else 0


def _look(args: argparse.Namespace, context: Context) -> list[Check]:
    checks = list(run_checks(context, args.agent, thorough=True))
    return [*checks, *(run_probe(context, args.agent) if args.probe else [])]


def _fix(checks: list[Check], args: argparse.Namespace, context: Context) -> list[dict[str, Any]]:
    """Runs each distinct fix once, in order. What only the person can do is told."""
    import sys

    done: list[dict[str, Any]] = []
    for check in checks:
        argv = fixing.argv_of(check, env=context.env)
        if argv is None:
            if check.status in ("FAIL", "WARN") and check.fix:
                note(f"ft: {check.id}: {check.text}. For you to do: {check.fix}")
            continue
        if any(check.fix == one["fix"] for one in done):
            continue
        note(f"ft: {check.id}: {check.text}. {check.cause}".rstrip())
        if not args.yes and not context.confirm(f"Run {check.fix} ?"):
            continue
        sys.stdout.flush()
        code = fixing.run(argv, context.env, context.cwd, quiet=args.json)
        done.append({"id": check.id, "fix": check.fix, "exit": code})
        note(f"ft: {check.fix}: {'done' if code == 0 else f'exit code {code}'}")
    return done


def _show(checks: list[Check], context: Context) -> None:
    style = context.out
    width = max(len(check.id) for check in checks) + 2
    for check in checks:
        print(f"{style(check.status.ljust(5), _COLOURS[check.status])} {check.id.ljust(width)}{check.text}")
        if check.cause and check.status in ("WARN", "FAIL"):
            print(f"      {' ' * width}{check.cause}")
        if check.fix and check.status in ("WARN", "FAIL", "SKIP"):
            print(f"      {' ' * width}{style('fix:', 'dim')} {check.fix}{' (by hand)' if check.by_hand else ''}")
