"""Which earlier session a launch goes on with, and where its folder is now."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftagent.context import Context
from ftagent.errors import NotHere, Refused, UsageError
from ftagent.output import note
from ftagent.session.leases import holder, lease_is_held
from ftagent.session.live import Live
from ftagent.session.records import (
    Session,
    all_sessions,
    belongs,
    find_session,
    has_moved,
    read_record,
)


@dataclass(frozen=True, slots=True)
class Place:
    """`moved` is where the project was before, when its folder has another name now."""

    root: Path
    cwd: Path
    moved: Path | None


def resumable(context: Context, here: Path, agent: str | None) -> list[Session]:
    """Sessions of this project that ran and are not attached, the one used last first."""
    found = [
        session
        for session in all_sessions(context.paths)
        if session.record is not None
        and session.last_run
        and belongs(session, here)
        and (agent is None or session.field("agent", "name") == agent)
        and not lease_is_held(context.paths, session.id)
    ]
    return sorted(found, key=_last_used, reverse=True)


def choose(context: Context, here: Path, agent: str | None, wanted: str, newest: bool) -> Session:
    """By name or id, or, with `wanted` empty, of this project. Raises NotHere, UsageError or Refused."""
    if wanted:
        session = find_session(context.paths, wanted, here)
    else:
        session = _of_project(context, resumable(context, here, agent), here, agent, newest)
    if session.record is None:
        raise Refused(f"The record of session {session.id} cannot be read.", f"Look at {session.directory}.")
    if agent is not None and session.field("agent", "name") != agent:
        raise UsageError(
            f"Session {session.field('name')} is one of {session.field('agent', 'name')}.", f"ft resume {session.id}"
        )
    return session


def refuse_attached(context: Context, session: Session) -> None:
    """Two agents at one conversation would each overwrite what the other wrote."""
    if lease_is_held(context.paths, session.id):
        name = session.field("name")
        where = holder(context.paths, session.id)
        raise Refused(
            f"Session {name} is still attached{f' ({where})' if where else ''}.",
            f"ft sessions attach {name}, or end it: ft sessions stop {name}",
            code="FT-E0440 still-attached",
        )


def refuse_used_since(session: Session) -> None:
    """Another ft had it between our look and our lease: its run would be overwritten, and the conversation may be another."""
    now = read_record(session.directory)
    if now is None or now.get("runs") != session.field("runs"):
        raise Refused(
            f"Session {session.field('name')} was used by another ft at the same time.",
            f"ft resume {session.id}",
            code="FT-E0440 still-attached",
        )


def place_of(session: Session, here: Path) -> Place:
    """Where the session's project is now. Raises NotHere when that cannot be found out."""
    root, cwd = Path(session.field("project", "root") or here), Path(session.field("project", "cwd") or here)
    moved = has_moved(session, here)
    if cwd.is_dir() and not moved:
        return Place(root, cwd, None)
    if moved and cwd.is_relative_to(root):
        now = here / cwd.relative_to(root)
        if now.is_dir():
            return Place(here, now, root)
    raise NotHere(
        f"The folder of session {session.field('name')} is gone: {cwd}.",
        "Where it was renamed, run the same command inside of it.",
        code="FT-E0304 no-folder",
    )


def _last_used(session: Session) -> str:
    run = session.last_run
    return str(run.get("end") or run.get("start") or session.field("created") or "")


def _of_project(context: Context, found: Sequence[Session], here: Path, agent: str | None, newest: bool) -> Session:
    start = f"ft launch {agent or 'AGENT'}"
    if not found:
        of = f" of {agent}" if agent else ""
        raise NotHere(f"There is nothing to resume{of} in {here}.", start, code="FT-E0301 no-session")
    if len(found) > 1 and not newest:
        if not context.may_ask:
            names = ", ".join(str(session.field("name")) for session in found[:8])
            raise UsageError(
                f"{len(found)} sessions can be resumed: {names}.",
                "Name one: ft resume NAME; or take the newest: --last",
            )
        return _pick(context, found)
    if len(found) > 1:
        note(f"ft: resuming {found[0].field('name')}, the newest of {len(found)}")
    return found[0]


def _pick(context: Context, found: Sequence[Session]) -> Session:
    live = Live(context.paths)
    for number, session in enumerate(found, 1):
        fields = (session.field("name"), session.field("agent", "name"), live.status(session), _last_used(session))
        note(f"{number:3}  " + "  ".join(str(field or "-") for field in fields))
    print(f"Resume which one [1-{len(found)}, nothing: none]? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer.isdigit() and 1 <= int(answer) <= len(found):
        return found[int(answer) - 1]
    raise NotHere("No session was chosen.", "ft ls")
