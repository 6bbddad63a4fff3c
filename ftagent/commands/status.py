"""One screen: engine, sessions, warnings"""

from __future__ import annotations

import argparse

from ftagent.context import Context
from ftagent.engine_report import describe, engine_report, exit_code
from ftagent.output import print_json
from ftagent.session_table import render, to_json
from ftagent.sessions import all_sessions


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running, 5 when it has crashed."""
    report = engine_report(context)
    sessions = all_sessions(context.paths)
    live = [session for session in sessions if session.status(context.paths) in ("running", "unreadable")]
    if args.json:
        document = {"schema": "ft.status/1", "engine": report, "sessions": [to_json(s, context.paths) for s in live]}
        print_json(document)
        return exit_code(report)
    print(f"engine    {describe(report)}")
    print(f"sessions  {len(live)} running, {len(sessions) - len(live)} ended or prepared")
    if live:
        print("\n" + render(live, context.paths))
    return exit_code(report)
