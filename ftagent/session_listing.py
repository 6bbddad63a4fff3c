"""`ft ls` and `ft sessions ls` are the same listing."""

from __future__ import annotations

import argparse

from ftagent.context import Context, find_project
from ftagent.output import note, print_json
from ftagent.session_table import render, to_json
from ftagent.sessions import all_sessions


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="of every project")
    parser.add_argument("-q", "--quiet", action="store_true", help="ids only")
    parser.add_argument("--json", action="store_true")


def list_sessions(args: argparse.Namespace, context: Context) -> int:
    """Unreadable records belong to every project, so that they are seen."""
    here = str(find_project(context.cwd))
    everything = all_sessions(context.paths)
    shown = [s for s in everything if args.all or s.record is None or s.field("project", "root") == here]
    if args.json:
        print_json({"schema": "ft.sessions/1", "sessions": [to_json(session, context.paths) for session in shown]})
    elif args.quiet:
        for session in shown:
            print(session.id)
    elif shown:
        print(render(shown, context.paths))
    else:
        others = f"; {len(everything)} in other projects: ft ls -a" if everything else ""
        note(f"ft: no sessions in this project{others}")
    return 0
