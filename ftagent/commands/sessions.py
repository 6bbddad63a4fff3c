"""List and show sessions"""

from __future__ import annotations

import argparse
import json

from ftagent.context import Context
from ftagent.output import print_json
from ftagent.session_listing import add_flags, list_sessions
from ftagent.session_table import to_json
from ftagent.sessions import find_session


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ls|show")
    add_flags(actions.add_parser("ls", help="list them", description="List sessions."))
    show = actions.add_parser("show", help="everything known of one", description="Everything known of one session.")
    show.add_argument("session", help="name, id, or the beginning of an id")
    show.add_argument("--json", action="store_true")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.action == "ls":
        return list_sessions(args, context)
    session = find_session(context.paths, args.session)
    document = to_json(session, context.paths)
    if args.json:
        print_json(document)
    else:
        for key, value in document.items():
            print(f"{key:12} {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}")
    return 0
