"""What the engine keeps of sessions on disk, removed with their records."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.local_engine.command import engine_command, foreground_environment
from ftagent.local_engine.running import find_engine
from ftagent.session.records import SESSION_ID, Session

TOOL_S = 120.0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Checkpoints that only these sessions had, and how many `shared` ones stay because others go on from them. `problem`: why
    that could not be done; None where it was."""

    files: int = 0
    bytes: int = 0
    shared: int = 0
    problem: str | None = None


def forget(context: Context, sessions: Sequence[Session], dry_run: bool) -> Forgotten:
    """A running engine is told first, so that it writes nothing of them again."""
    ids = [session.id for session in sessions if SESSION_ID.fullmatch(session.id)]
    if not ids or not context.paths.checkpoints.is_dir():
        return Forgotten()
    engine = find_engine(context.paths)
    try:
        before = _tool(context, ids, "--dry-run")
        if dry_run:
            return before
        if engine is not None:
            for id_ in ids:
                with contextlib.suppress(FtError):  # an engine that has no such address yet, or is stopping
                    engine.client.post(f"/v1/sessions/{id_}/forget", {})
        _tool(context, ids, *(["--checkpoints-only"] if engine is not None else []))
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return Forgotten(problem=str(error) or type(error).__name__)
    return before


def _tool(context: Context, ids: Sequence[str], *flags: str) -> Forgotten:
    named = [word for id_ in ids for word in ("--session", id_)]
    command = engine_command("forget", "--hibernate-dir", str(context.paths.checkpoints), *named, *flags)
    done = subprocess.run(
        command, env=foreground_environment(context.env), capture_output=True, text=True, timeout=TOOL_S
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(said)
    told: dict[str, Any] = json.loads(done.stdout)
    return Forgotten(int(told["files"]), int(told["bytes"]), int(told["shared"]))


def what_stays(session: Session, shared: int) -> list[str]:
    """Lines for a person: what of a session is not ours to remove."""
    stays = [
        f"{session.field('agent', 'name') or 'the agent'}'s own conversation {one['id']}"
        + (f": {one['file']}" if one.get("file") else "")
        for one in session.field("harness") or []
        if isinstance(one, dict) and one.get("id")
    ]
    worktree = session.field("project", "worktree")
    if isinstance(worktree, dict):
        stays.append(f"the worktree {worktree.get('path')} and its branch {worktree.get('branch')}")
    if shared:
        stays.append(f"{shared} {'checkpoint' if shared == 1 else 'checkpoints'} that other sessions go on from")
    return stays
