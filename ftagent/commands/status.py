"""One screen: engine, sessions, warnings"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ftagent.context import Context
from ftagent.errors import UsageError
from ftagent.local_engine.report import describe, engine_report, exit_code
from ftagent.output import print_json
from ftagent.session.leases import lease_is_held
from ftagent.session.live import Live
from ftagent.session.records import all_sessions
from ftagent.session.table import render, to_json

WATCH_S = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    parser.add_argument(
        "--watch", action="store_true", help="again every two seconds, one below the other, until Ctrl-C"
    )


def watch(context: Context) -> int:
    """The dashboard of terminals that cannot move their cursor: prints what changed since the last look, until interrupted."""
    shown = ""
    while True:
        text = _text(context)
        if text != shown:
            print(f"{time.strftime('%H:%M:%S')}\n{text}\n", flush=True)
            shown = text
        time.sleep(WATCH_S)


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running, 5 when it has crashed."""
    if args.watch:
        if args.json:
            raise UsageError("--watch is for people, --json for programs.", "Give one of them.")
        return watch(context)
    report = engine_report(context)
    if args.json:
        now = Live(context.paths)
        sessions = [to_json(s, now) for s in all_sessions(context.paths) if lease_is_held(context.paths, s.id)]
        print_json({"schema": "ft.status/1", "engine": report, "sessions": sessions})
    else:
        print(_text(context, report))
    return exit_code(report)


def _text(context: Context, report: dict[str, Any] | None = None) -> str:
    report = engine_report(context) if report is None else report
    sessions = all_sessions(context.paths)
    live = [s for s in sessions if lease_is_held(context.paths, s.id)]
    unreadable = sum(s.record is None for s in sessions if s not in live)
    damaged = f", {unreadable} unreadable: ft ls -a" if unreadable else ""
    lines = [
        f"engine    {describe(report)}",
        f"sessions  {len(live)} running, {len(sessions) - len(live) - unreadable} ended or prepared{damaged}",
    ]
    if live:
        lines += ["", render(live, Live(context.paths))]
    return "\n".join(lines)
