"""`ft ls` and `ft sessions ls` are the same listing."""

from __future__ import annotations

import argparse

from ftagent.context import Context, find_project
from ftagent.errors import UsageError
from ftagent.output import note, print_json
from ftagent.session.live import STATUSES, Live
from ftagent.session.records import Session, all_sessions, belongs
from ftagent.session.table import render, to_json

FILTERS = ("status", "agent", "model", "name", "branch")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="of every project")
    parser.add_argument("-q", "--quiet", action="store_true", help="ids only")
    parser.add_argument(
        "--filter", metavar="KEY=VALUE", action="append", default=[], help="only these: " + ", ".join(FILTERS)
    )
    parser.add_argument("--no-trunc", action="store_true", help="long names whole")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def list_sessions(args: argparse.Namespace, context: Context) -> int:
    """Nobody knows whose an unreadable record is: without --all people are told how many there are, and JSON has them."""
    here = find_project(context.cwd)
    wanted = [_filter(text) for text in args.filter]
    everything, live = all_sessions(context.paths), Live(context.paths)
    shown = [s for s in everything if args.all or s.record is None or belongs(s, here)]
    shown = [s for s in shown if all(_value(s, key, live) == value for key, value in wanted)]
    hidden = 0
    if not args.all and not args.json and ("status", "unreadable") not in wanted:
        readable = [s for s in shown if s.record is not None]
        hidden, shown = len(shown) - len(readable), readable
    if args.json:
        print_json({"schema": "ft.sessions/1", "sessions": [to_json(session, live) for session in shown]})
    elif args.quiet:
        for session in shown:
            print(session.id)
    elif shown:
        print(render(shown, live, whole=args.no_trunc))
    else:
        elsewhere = sum(session.record is not None for session in everything)
        others = f"; {elsewhere} in other projects: ft ls -a" if elsewhere and not args.all else ""
        note(f"ft: no sessions {'that match' if wanted else 'in this project'}{others}")
    if hidden:
        note(f"ft: {hidden} {'record' if hidden == 1 else 'records'} cannot be read: ft ls -a")
    return 0


def _filter(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if key not in FILTERS or not equals:
        raise UsageError(f"--filter {text}: expected KEY=VALUE with one of {', '.join(FILTERS)}.", "ft ls --help")
    if key == "status" and value not in STATUSES:
        raise UsageError(f"There is no status {value!r}.", "Known: " + ", ".join(STATUSES))
    return key, value


def _value(session: Session, key: str, live: Live) -> str | None:
    fields = {"agent": ("agent", "name"), "model": ("model", "id"), "name": ("name",), "branch": ("project", "branch")}
    return live.status(session) if key == "status" else session.field(*fields[key])
