"""One screen: engine, sessions, warnings"""

from __future__ import annotations

import argparse

from ftagent.context import Context
from ftagent.local_engine.report import describe, engine_report, exit_code
from ftagent.output import print_json
from ftagent.session.live import Live
from ftagent.session.records import all_sessions, lease_is_held
from ftagent.session.table import render, to_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running, 5 when it has crashed."""
    report = engine_report(context)
    sessions = all_sessions(context.paths)
    now = Live(context.paths)
    live = [s for s in sessions if lease_is_held(context.paths, s.id)]
    unreadable = sum(s.record is None for s in sessions if s not in live)
    if args.json:
        document = {"schema": "ft.status/1", "engine": report, "sessions": [to_json(s, now) for s in live]}
        print_json(document)
        return exit_code(report)
    print(f"engine    {describe(report)}")
    damaged = f", {unreadable} unreadable: ft ls -a" if unreadable else ""
    print(f"sessions  {len(live)} running, {len(sessions) - len(live) - unreadable} ended or prepared{damaged}")
    if live:
        print("\n" + render(live, now))
    return exit_code(report)
