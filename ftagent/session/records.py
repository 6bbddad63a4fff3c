"""Session records: one folder per session, written by `ft launch`, so that one broken file never hides the others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftagent.atomic import read_json, write_json
from ftagent.errors import NotHere, UsageError
from ftagent.paths import Paths, ensure
from ftagent.session.shape import SCHEMA as SCHEMA
from ftagent.session.shape import is_record
from ftagent.text import visible

SESSION_ID = re.compile(r"s-[a-z2-7]{10}")  # as the engine gives them


def now() -> str:
    """RFC 3339, UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def project_id(root: Path) -> str:
    return hashlib.sha256(str(root).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Session:
    """`record` is the document of session.json; None when it cannot be read or has another shape (status `unreadable`)."""

    id: str
    directory: Path
    record: dict[str, Any] | None

    def field(self, *keys: str) -> Any:
        value: Any = self.record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def last_run(self) -> dict[str, Any]:
        runs = self.field("runs")
        return runs[-1] if isinstance(runs, list) and runs and isinstance(runs[-1], dict) else {}

    def status(self, paths: Paths) -> str:
        """One of session_live.STATUSES; for many sessions use one `Live`."""
        from ftagent.session.live import Live

        return Live(paths).status(self)


def all_sessions(paths: Paths) -> list[Session]:
    """Newest first."""
    found = [
        Session(folder.name, folder, read_record(folder)) for folder in paths.sessions.glob("s-*") if folder.is_dir()
    ]
    return sorted(found, key=lambda session: str(session.field("created") or ""), reverse=True)


_read: dict[Path, tuple[tuple[int, ...], dict[str, Any] | None]] = {}


def read_record(folder: Path) -> dict[str, Any] | None:
    """The session's record; None when it is missing, cannot be read or has another shape. Not to be changed in place.

    A launch looks at all records several times: what was read is kept until its file is another one, as each `save` makes it.
    """
    file = folder / "session.json"
    try:
        found = file.stat()
    except OSError:
        return None
    version = (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
    known = _read.get(folder)
    if known is None or known[0] != version:
        known = _read[folder] = (version, _parse(file))
    return known[1]


def _parse(file: Path) -> dict[str, Any] | None:
    try:
        document = read_json(file)
    except RecursionError:
        return None
    if document is None or not is_record(document):
        return None
    # it is printed in many places, and written back as it can be printed
    return {**document, "name": visible(document["name"])}


def folder_identity(root: Path) -> list[int] | None:
    """What a folder keeps when it is renamed: the numbers of its own and of its `.git`."""
    try:
        found = root.stat()
        git = root / ".git"
        return [found.st_dev, found.st_ino, *([git.stat().st_ino] if git.exists() else [])]
    except OSError:
        return None


def belongs(session: Session, here: Path) -> bool:
    """Whether a session is one of the project at `here`: by its path, by its worktree, or by a folder that was renamed."""
    paths = (session.field("project", "root"), session.field("project", "worktree", "path"))
    return str(here) in paths or has_moved(session, here)


def has_moved(session: Session, here: Path) -> bool:
    """Whether the folder at `here` is the session's, which had another name; one that has the old name now is another."""
    root, kept = session.field("project", "root"), session.field("project", "folder")
    if not kept or not isinstance(root, str) or str(here) == root:
        return False
    return bool(folder_identity(here) == kept != folder_identity(Path(root)))


def find_session(paths: Paths, wanted: str, here: Path | None = None) -> Session:
    """By id, name, or unique beginning of an id (from 4 characters); of two projects' equal names, the one of `here`.

    Raises NotHere, and UsageError when it may be one or another.
    """
    sessions = all_sessions(paths)
    exact = [session for session in sessions if wanted == session.id]
    exact = exact or [session for session in sessions if wanted == session.field("name")]
    own = [session for session in exact if here is not None and belongs(session, here)]
    if len(own or exact) > 1:
        where = ", ".join(f"{s.id} in {s.field('project', 'root') or 'an unknown folder'}" for s in (own or exact)[:4])
        raise UsageError(f"{len(own or exact)} sessions are named {wanted!r}: {where}.", "Name one by its id: ft ls -a")
    if exact:
        return (own or exact)[0]
    prefix = wanted if wanted.startswith("s-") else "s-" + wanted
    near = [session for session in sessions if len(wanted) >= 4 and session.id.startswith(prefix)]
    if len(near) > 1:
        raise UsageError(f"{wanted!r} names {len(near)} sessions.", "Type more of the id: ft ls")
    if not near:
        raise NotHere(f"There is no session {wanted!r}.", "ft ls", code="FT-E0301 no-session")
    return near[0]


def log_event(directory: Path, event: str, **fields: Any) -> None:
    """One line of events.jsonl; what cannot be written there stops nothing."""
    line = json.dumps({"time": now(), "event": event, **fields}, ensure_ascii=False) + "\n"
    with contextlib.suppress(OSError):
        descriptor = os.open(directory / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)


def conversations_but(paths: Paths, session_id: str) -> set[str]:
    """The agents' own ids of the conversations of all other sessions, but those that may as well be of this one."""
    others = (session.field("harness") or [] for session in all_sessions(paths) if session.id != session_id)
    known = (one for links in others for one in links if isinstance(one, dict) and "id" in one)
    return {one["id"] for one in known if one.get("confidence") != "ambiguous"}


def save(directory: Path, record: dict[str, Any]) -> None:
    write_json(ensure(directory) / "session.json", record)


def save_over(directory: Path, record: dict[str, Any]) -> None:
    """Save what was made of a record read long ago: the name that was given to it since stays."""
    there = read_record(directory)
    save(directory, record if there is None else {**record, "name": there["name"]})
