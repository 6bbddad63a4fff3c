"""Take back what we wrote into files of yours, byte for byte where nobody wrote since"""

from __future__ import annotations

import argparse

from ftagent.context import Context
from ftagent.errors import NotHere, UsageError
from ftagent.files.difference import unified
from ftagent.files.journal import Entry, Journal, backups_of
from ftagent.files.restoring import Undo, perform, plan_back_to, plan_undo
from ftagent.output import note, print_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Only keys that still hold what we wrote are taken back; others are listed and stay.\n\n"
        "examples:\n"
        "  ft restore openclaw             what ft launch openclaw --integrate wrote\n"
        "  ft restore --list               every backup\n"
        "  ft restore openclaw --original  the file as it was before the first write\n"
    )
    parser.add_argument("agent", nargs="?", help="only files of this agent; `ft` for ft's own settings")
    parser.add_argument("--list", action="store_true", help="list the backups, change nothing")
    parser.add_argument("--to", metavar="ID", help="put this whole backup back")
    parser.add_argument("--original", action="store_true", help="put the file back as it was before our first write")
    parser.add_argument("--all", action="store_true", help="of every agent, and ft's own settings")
    parser.add_argument("--dry-run", action="store_true", help="show the difference, change nothing")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Raises Refused (4) for a file that does not parse, NotHere (3) when there is nothing of that agent."""
    if sum(map(bool, (args.list, args.to, args.original))) > 1:
        raise UsageError("--list, --to and --original exclude each other.", "ft restore --help")
    if args.all and args.agent:
        raise UsageError("--all is every agent.", f"ft restore {args.agent}")
    entries = Journal(context.paths).entries()
    mine = [e for e in entries if e.owner == args.agent or (args.agent is None and (args.all or e.owner != "ft"))]
    if args.list:
        return _list(args, context, mine)
    if args.agent and not mine:
        raise NotHere(f"Nothing was ever written for {args.agent!r}.", "ft restore --list --all")
    undos = _plans(args, context, mine)
    done = []
    for undo in undos:
        diff = unified(undo.plan.target, undo.plan.before, undo.plan.after, undo.plan.format)
        if not args.dry_run:
            perform(undo, context.paths)
        left = [".".join(key) for key in undo.left]
        done.append(
            {"agent": undo.plan.owner, "path": str(undo.plan.target), "whole": undo.whole, "left": left, "diff": diff}
        )
        if not args.json:
            _say(done[-1], args.dry_run)
    if args.json:
        print_json({"schema": "ft.restore/1", "dry_run": args.dry_run, "files": done})
    elif not done:
        note("ft: no file of yours holds anything of ours")
    return 0


def _say(file: dict[str, object], dry_run: bool) -> None:
    if dry_run:
        print(file["diff"], end="")
    how = "is as it was, byte for byte" if file["whole"] else "no longer holds what we wrote"
    note(f"ft: {file['path']} {'would be changed back' if dry_run else how}")
    for key in file["left"] if isinstance(file["left"], list) else []:
        note(f"    left, because it was changed since: {key}")


def _plans(args: argparse.Namespace, context: Context, entries: list[Entry]) -> list[Undo]:
    newest = {entry.target: entry for entry in entries}
    if args.original:
        found = [(entry, backups_of(context.paths, entry).original()) for entry in newest.values()]
        return [plan_back_to(context.paths, entry, name) for entry, name in found if name]
    if args.to:
        for entry in newest.values():
            backups = backups_of(context.paths, entry)
            if args.to in backups.names() or args.to == backups.original():
                return [plan_back_to(context.paths, entry, args.to)]
        raise NotHere(f"There is no backup {args.to!r}.", "ft restore --list")
    undos = plan_undo(context.paths, args.agent)
    return [undo for undo in undos if args.agent or args.all or undo.plan.owner != "ft"]


def _list(args: argparse.Namespace, context: Context, entries: list[Entry]) -> int:
    times = {entry.id: entry.time for entry in entries}
    rows = []
    for entry in {entry.target: entry for entry in entries}.values():
        backups = backups_of(context.paths, entry)
        for name in [*filter(None, [backups.original()]), *backups.names()]:
            size = None if name.endswith("missing") else (backups.folder / name).stat().st_size
            row = {"agent": entry.owner, "path": entry.path, "id": name, "time": times.get(name), "bytes": size}
            rows.append(row)
    if args.json:
        print_json({"schema": "ft.backups/1", "backups": rows})
    elif rows:
        head = ["AGENT", "FILE", "ID", "TIME", "BYTES"]
        cells = [
            [str("-" if row[name] is None else row[name]) for name in ("agent", "path", "id", "time", "bytes")]
            for row in rows
        ]
        print(table([head, *cells]))
    else:
        note("ft: there are no backups")
    return 0
