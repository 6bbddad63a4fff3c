"""List, show and manage sessions"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import time
from datetime import UTC, datetime, timedelta

from ftagent.commands import resume
from ftagent.context import Context, find_project
from ftagent.errors import Conflict, FtError, NotHere, Refused, UsageError
from ftagent.launch import detach
from ftagent.output import note, print_json
from ftagent.session.forgetting import Forgotten, forget, what_stays
from ftagent.session.leases import drop_lease, holder, lease_is_held, lease_pid, take_lease
from ftagent.session.listing import add_flags, list_sessions
from ftagent.session.live import Live
from ftagent.session.names import reserved_name
from ftagent.session.records import (
    Session,
    all_sessions,
    find_session,
    log_event,
    save,
)
from ftagent.session.table import to_json
from ftagent.text import require_utf8, visible

TAKES_REST = True
STOP_S = 15.0
PRUNE_DAYS = 30


def configure(parser: argparse.ArgumentParser) -> None:
    names = "ls|show|attach|resume|rename|stop|rm|prune|logs|path"
    actions = parser.add_subparsers(dest="action", required=True, metavar=names)
    add_flags(actions.add_parser("ls", help="list them", description="List sessions."))
    _of_one(actions, "show", "everything known of one").add_argument(
        "--json", action="store_true", help="as one JSON document"
    )
    _of_one(actions, "attach", "to one that runs detached")
    resume.configure(actions.add_parser("resume", help="go on with one", description="Go on with an earlier session."))
    _of_one(actions, "rename", "give one another name").add_argument("name", help="the new name, unique in the project")
    stop = _of_one(actions, "stop", "end the agent of one")
    stop.add_argument("--dry-run", action="store_true", help="say what would happen, change nothing")
    remove = _of_one(
        actions, "rm", "remove our record of one and what the engine keeps of it alone; the agent's own files stay"
    )
    remove.add_argument("--dry-run", action="store_true", help="say what would happen, change nothing")
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask")
    prune = actions.add_parser("prune", help="remove records of sessions that ended long ago")
    prune.add_argument(
        "--days", metavar="N", default=str(PRUNE_DAYS), help=f"ended before N days (default {PRUNE_DAYS})"
    )
    prune.add_argument("-y", "--yes", action="store_true", help="remove them; without it they are only shown")
    prune.add_argument("--dry-run", action="store_true", help="only show them")
    prune.add_argument("--json", action="store_true", help="as one JSON document")
    _of_one(actions, "logs", "what happened in one").add_argument(
        "--json", action="store_true", help="as one JSON document"
    )
    _of_one(actions, "path", "the folder of one")


def _of_one(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("session", help="name, id, or the beginning of an id")
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    if args.action == "ls":
        return list_sessions(args, context)
    if args.action == "resume":
        return resume.run(args, context)
    if args.action == "prune":
        return _prune(args, context)
    session = find_session(context.paths, args.session, find_project(context.cwd))
    actions = {
        "show": _show, "attach": _attach, "rename": _rename, "stop": _stop, "rm": _remove, "logs": _logs, "path": _path,
    }  # fmt: skip
    return actions[args.action](session, args, context)


def _show(session: Session, args: argparse.Namespace, context: Context) -> int:
    document = to_json(session, Live(context.paths))
    if args.json:
        print_json(document)
        return 0
    for key, value in document.items():
        if key == "harness":
            for one in value or []:
                times = f"{one.get('first_seen') or '-'} to {one.get('last_seen') or '-'}"
                told = f"{one['id']}  {one['source']} ({one.get('confidence') or 'certain'})  {times}"
                print(f"{key:12} {visible(told)}")
            continue
        told = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
        print(f"{visible(key):12} {visible(told)}")
    return 0


def _attach(session: Session, args: argparse.Namespace, context: Context) -> int:
    """Becomes tmux."""
    if not lease_is_held(context.paths, session.id):
        raise NotHere(f"Session {args.session} does not run.", f"ft resume {session.id}")
    if not session.last_run.get("tmux"):
        where = holder(context.paths, session.id)
        raise NotHere(
            f"Session {args.session} does not run detached{f': {where}' if where else ''}.", "Go to its terminal."
        )
    detach.attach(detach.tmux(context.env), session.id)


def _rename(session: Session, args: argparse.Namespace, context: Context) -> int:
    from pathlib import Path

    require_utf8("The name", args.name)
    record = _record_of(session)
    if args.name != record.get("name"):
        root = Path(str(session.field("project", "root")))
        with reserved_name("", args.name, root, context.paths) as name:
            log_event(session.directory, "renamed", old=record.get("name"), new=name)
            save(session.directory, {**record, "name": name})
    return 0


def _record_of(session: Session) -> dict[str, object]:
    if session.record is None:
        raise Refused(f"The record of session {session.id} cannot be read.", f"Look at {session.directory}.")
    return session.record


def _stop(session: Session, args: argparse.Namespace, context: Context) -> int:
    """TERM to the process that holds the lease, which passes it on to the agent's group."""
    if not lease_is_held(context.paths, session.id):
        raise NotHere(f"Session {args.session} does not run.", "ft ls")
    pid = lease_pid(context.paths, session.id)
    if pid is None:
        raise Conflict(
            f"The process of session {args.session} is not known any more.", "Leave the agent in its terminal."
        )
    if args.dry_run:
        note(f"ft: would end {holder(context.paths, session.id)}")
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while lease_is_held(context.paths, session.id):
        if time.monotonic() > deadline:
            raise FtError(f"Session {args.session} still runs after {STOP_S:.0f} s (process {pid}).", f"kill -9 {pid}")
        time.sleep(0.05)
    note(f"ft: session {session.field('name') or session.id} has ended")
    return 0


def _remove(session: Session, args: argparse.Namespace, context: Context) -> int:
    if lease_is_held(context.paths, session.id):
        raise Refused(
            f"Session {args.session} is still attached.",
            f"ft sessions stop {session.id}",
            code="FT-E0440 still-attached",
        )
    if args.dry_run:
        note(f"ft: would remove {session.directory}{_also(forget(context, [session], dry_run=True))}")
        return 0
    if not args.yes:
        question = f"Remove the record of session {session.field('name') or session.id}? The agent's own files stay."
        if not context.may_ask:
            raise UsageError(
                "ft sessions rm removes a record, and there is nobody here to ask.",
                f"ft sessions rm {session.id} --yes",
            )
        if not context.confirm(question):
            return 1
    name = session.field("name") or session.id
    forgotten = _removed(session, context)
    note(f"ft: removed the record of {name}{_also(forgotten)}")
    for line in what_stays(session, forgotten.shared):
        note(f"    stays: {line}")
    return 0


def _removed(session: Session, context: Context) -> Forgotten:
    """Nobody goes on with it meanwhile. Raises Refused when somebody does."""
    lease = take_lease(context.paths, session.id)
    try:
        forgotten = forget(context, [session], dry_run=False)
        shutil.rmtree(session.directory)
    finally:
        drop_lease(context.paths, session.id, lease)
    return forgotten


def _also(forgotten: Forgotten) -> str:
    if forgotten.problem is not None:
        return f"; what the engine kept of it was not: {forgotten.problem}"
    if not forgotten.files:
        return ""
    kept = "1 checkpoint" if forgotten.files == 1 else f"{forgotten.files:,} checkpoints"
    return f" and {kept} of it ({forgotten.bytes:,} bytes)"


def _ended_before(session: Session, limit: datetime) -> bool:
    run = session.last_run
    last = str(run.get("end") or run.get("start") or session.field("created") or "")
    if session.record is None or session.field("pinned") or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", last):
        return False
    return last < limit.strftime("%Y-%m-%dT%H:%M:%SZ")


def _prune(args: argparse.Namespace, context: Context) -> int:
    if not args.days.isdigit():
        raise UsageError(f"--days {args.days}: expected a whole number.", "ft sessions prune --help")
    limit = datetime.now(UTC) - timedelta(days=min(int(args.days), 36500))
    old = [s for s in all_sessions(context.paths) if _ended_before(s, limit) and not lease_is_held(context.paths, s.id)]
    remove = args.yes and not args.dry_run
    forgotten = forget(context, old, dry_run=not remove)
    freed = forgotten.bytes + sum(
        file.lstat().st_size for s in old for file in s.directory.rglob("*") if file.is_file()
    )
    for session in old if remove else []:
        shutil.rmtree(session.directory)
    if args.json:
        ids = [session.id for session in old]
        counts = {"checkpoints": forgotten.files, "shared": forgotten.shared, "problem": forgotten.problem}
        print_json({"schema": "ft.prune/1", "sessions": ids, "bytes": freed, "removed": remove, **counts})
    else:
        for session in old:
            print(f"{session.id}  {session.field('name') or '-'}")
        note(f"ft: {len(old)} sessions, {freed:,} bytes {'freed' if remove else 'would be freed: add --yes'}")
        if forgotten.problem is not None:
            note(f"ft: what the engine kept of them was not removed: {forgotten.problem}")
    return 0


def _logs(session: Session, args: argparse.Namespace, context: Context) -> int:
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = (session.directory / "events.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        with contextlib.suppress(ValueError, AttributeError):  # a line that a power cut left half written
            event = json.loads(line)
            if args.json:
                print_json({"schema": "ft.event/1", "seq": number, **event})
                continue
            rest = {key: value for key, value in event.items() if key not in ("time", "event")}
            told = json.dumps(rest, ensure_ascii=False) if rest else ""
            print(visible(f"{event.get('time')}  {event.get('event')}  {told}".rstrip()))
    return 0


def _path(session: Session, args: argparse.Namespace, context: Context) -> int:
    print(session.directory)
    return 0
