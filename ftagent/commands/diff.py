"""Show what our last write changed in a file of yours, and what changed since"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ftagent.context import Context
from ftagent.files.difference import masked_value, unified
from ftagent.files.formats import load
from ftagent.files.journal import Entry, Journal, active, backups_of, read_or_none
from ftagent.files.keys import CannotEdit, KeyChange, find, same
from ftagent.files.restoring import effective
from ftagent.output import note, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  ft diff              every file of an agent that holds something of ours\n  ft diff openclaw\n"
    )
    parser.add_argument("agent", nargs="?", help="only files of this agent; `ft` for ft's own settings")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Changes nothing, not even what a killed write left behind."""
    entries = Journal(context.paths).entries()
    files = [
        _document(context, path, stands)
        for path, stands in active(entries, args.agent).items()
        if args.agent or stands[-1].owner != "ft"
    ]
    if args.json:
        print_json({"schema": "ft.diff/1", "files": files})
        return 0
    for file in files:
        print(f"# {file['path']} ({file['agent']}), written {file['time']} by ft {file['ft_version']}")
        print(_painted(file["written"], context), end="")
        if file["drift"]:
            print("# changed since then, not by ft:")
            print(_painted(file["drift"], context), end="")
        for key in file["keys"]:
            print(f"  {'.'.join(key['key'])}: {key['state']}")
    if not files:
        note("ft: no file of yours holds anything of ours")
    return 0


def _document(context: Context, path: Path, stands: list[Entry]) -> dict[str, Any]:
    last = stands[-1]
    backups = backups_of(context.paths, last)
    present = read_or_none(last.target)
    written = backups.written(last.id)
    try:
        before = backups.content(last.id)
    except OSError:
        before = None
    drift = None if written is None else unified(last.target, written, present, last.format) or None
    try:
        data = load((present or b"").decode("utf-8", "replace"), last.format)
    except CannotEdit:
        data = None
    return {
        "agent": last.owner,
        "path": str(path),
        "id": last.id,
        "time": last.time,
        "ft_version": last.ft_version,
        "written": unified(last.target, before, written, last.format),
        "drift": drift,
        "keys": [_key(change, data) for change in effective(stands)],
    }


def _key(change: KeyChange, data: object) -> dict[str, object]:
    had, value = find(data, change.key)
    ours = not had if change.removed else had and same(value, change.written)
    state = "unparseable" if data is None else "ours" if ours else "changed" if had else "gone"
    return {
        "key": list(change.key),
        "state": state,
        "written": masked_value(change.key, change.written),
        "now": masked_value(change.key, value) if had else None,
    }


def _painted(diff: str, context: Context) -> str:
    style = context.out
    colours = {"+": "green", "-": "red", "@": "dim"}
    return "".join(
        style(line, colours[line[0]]) + "\n" if line[:1] in colours else line + "\n" for line in diff.splitlines()
    )
