"""List everything that ft has ever written on this machine, and remove it"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftagent.context import Context
from ftagent.errors import Conflict, FtError, Refused
from ftagent.output import note, print_json, table

if TYPE_CHECKING:
    from ftagent.files.journal import Entry


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  ft uninstall --dry-run           the list, with sizes; changes nothing\n"
        "  ft uninstall --yes --keep-models\n"
        "Files of agents get back what we wrote into them first. The program itself: pip uninstall ftagent\n"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep-models", action="store_true", help="leave the models where they are")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Raises Conflict (6) while an engine or a session runs, Refused (4) without --yes or a person's word."""
    items = _items(context, args.keep_models)
    if args.json:
        print_json({"schema": "ft.uninstall/1", "dry_run": not args.yes or args.dry_run, "items": items})
    elif items:
        rows = [
            [item["kind"], item["path"], "-" if item["bytes"] is None else f"{item['bytes']:,}", item["action"]]
            for item in items
        ]
        print(table([["WHAT", "WHERE", "BYTES", "ACTION"], *rows]))
    if args.dry_run:
        return 0
    if not items:
        note("ft: nothing has been written on this machine")
        return 0
    _refuse_while_running(context)
    if not args.yes and not (context.may_ask and not args.json and context.confirm("Remove all of this?")):
        raise Refused("Nothing was removed.", "ft uninstall --yes")
    _restore(context)
    for item in items:
        if item["action"] == "remove":
            _remove(Path(item["path"]))
    for folder in (*_roots(context).values(), context.paths.config.parent if context.env.get("FT_HOME") else None):
        if folder is not None and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if not args.json:
        note("ft: removed. The program itself: pip uninstall ftagent")
    return 0


def _roots(context: Context) -> dict[str, Path]:
    paths = context.paths
    return {
        "config": paths.config,
        "state": paths.state,
        "runtime": paths.runtime,
        "cache": paths.cache,
        "data": paths.data,
    }


def _items(context: Context, keep_models: bool) -> list[dict[str, Any]]:
    """Each entry directly below one of our folders; and the files of others that hold something of ours."""
    from ftagent.files.journal import Journal, active

    items: list[dict[str, Any]] = []
    for path, entries in active(Journal(context.paths).entries()).items():
        if entries[-1].owner != "ft":
            items.append(
                {"kind": f"file of {entries[-1].owner}", "path": str(path), "bytes": None, "action": "restore"}
            )
    for kind, root in _roots(context).items():
        for path in _ours(context, root):
            keep = keep_models and path == context.paths.models
            action = "keep" if keep else "remove"
            items.append({"kind": kind, "path": str(path), "bytes": _size(path), "action": action})
    items += _beside_projects(context, Journal(context.paths).entries())
    try:
        elsewhere = context.models_dir(context.settings())
    except FtError:
        return items
    if elsewhere != context.paths.models and elsewhere.is_dir():
        items.append({"kind": "models", "path": str(elsewhere), "bytes": _size(elsewhere), "action": "keep"})
    return items


def _ours(context: Context, root: Path) -> list[Path]:
    """What in one of our folders is to go. The runtime folder may be one that ft of other homes, or of nobody we know, uses too:
    there leases of our own sessions are ours, and everything where no others are."""
    if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.getuid():
        return []
    entries = sorted(path for path in root.iterdir() if path.lstat().st_uid == os.getuid())
    if root != context.paths.runtime or context.env.get("FT_HOME"):
        return entries
    from ftagent.session.records import all_sessions

    known = {session.id for session in all_sessions(context.paths)}
    leases = sorted(context.paths.leases.glob("s-*.json"))
    own = [lease for lease in leases if lease.stem in known]
    if len(own) < len(leases):
        return own
    others = (folder for folder in _roots(context).values() if folder != root)
    return entries if any(folder.is_dir() for folder in others) else []


def _beside_projects(context: Context, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What was asked for in projects, and stays: settings of a project, worktrees of sessions."""
    from ftagent.session.records import all_sessions

    found = {
        entry.target: "settings of a project" for entry in entries if entry.owner == "ft" and entry.state == "done"
    }
    for session in all_sessions(context.paths):
        worktree = session.field("project", "worktree")
        if isinstance(worktree, dict) and worktree.get("by") == "ft" and worktree.get("path"):
            found[Path(worktree["path"])] = "git worktree"
    roots = list(_roots(context).values())
    return [
        {"kind": kind, "path": str(path), "bytes": _size(path), "action": "keep"}
        for path, kind in sorted(found.items())
        if path.exists() and not any(path.is_relative_to(root) for root in roots)
    ]


def _size(path: Path) -> int:
    """Links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir() or inner.is_symlink())


def _refuse_while_running(context: Context) -> None:
    from ftagent.local_engine.running import find_engine
    from ftagent.session.leases import lease_is_held
    from ftagent.session.records import all_sessions

    if find_engine(context.paths) is not None:
        raise Conflict("An engine is running.", "ft engine stop", code="FT-E0613 running")
    held = [session.id for session in all_sessions(context.paths) if lease_is_held(context.paths, session.id)]
    if held:
        raise Conflict(f"An agent is running: {', '.join(held)}.", "End it first: ft ls -a", code="FT-E0613 running")


def _restore(context: Context) -> None:
    from ftagent.files.restoring import perform, plan_undo

    for undo in plan_undo(context.paths, None):
        if undo.plan.owner != "ft":
            perform(undo, context.paths)
            for key in undo.left:
                note(f"ft: {undo.plan.target}: left, because it was changed since: {'.'.join(key)}")


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
