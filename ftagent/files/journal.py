"""`restore.json`: what we changed in files of the user, per file and per key. Never taken for empty when it cannot be read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftagent import __version__
from ftagent.atomic import write_json
from ftagent.errors import Conflict, Refused
from ftagent.files.backups import Backups, digest
from ftagent.files.keys import KeyChange
from ftagent.paths import Paths, ensure

SCHEMA = "ft.journal/1"
LOCK_WAIT_S = 10.0
KEEP_UNDONE = 20


@dataclass(slots=True)
class Entry:
    """One write. `state`: pending (the write was begun), done, undone. `undoes`: ids of entries this one takes back."""

    id: str  # of the backup of the bytes before
    owner: str  # an agent, or `ft`
    path: str  # links followed
    format: str
    sha_before: str | None  # None: there was no file
    sha_after: str | None
    keys: list[dict[str, Any]]
    undoes: list[str]
    made_folders: list[str]
    temporary: str
    state: str
    time: str
    ft_version: str

    @property
    def target(self) -> Path:
        return Path(self.path)

    def changes(self) -> list[KeyChange]:
        return [KeyChange(tuple(k["key"]), k["had"], k["old"], k["written"], k["removed"]) for k in self.keys]


class Journal:
    """All methods that write expect the lock to be held."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.file = paths.journal

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer of the user's files at a time. Raises Conflict after `LOCK_WAIT_S`."""
        ensure(self.paths.state)
        lock = self.paths.state / "restore.lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + LOCK_WAIT_S
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Conflict(f"Another ft is writing files ({lock} is held).", "Try again.") from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(descriptor)

    def entries(self) -> list[Entry]:
        """Oldest first. Raises Refused when the file cannot be read."""
        try:
            document = json.loads(self.file.read_text(encoding="utf-8"))
            if document["schema"] != SCHEMA:
                raise ValueError(f"its schema is {document['schema']!r}")
            return [Entry(**entry) for entry in document["entries"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refused(
                f"{self.file} cannot be read: {error}.",
                f"The backups are in {self.paths.backups}; move the file away to begin a new one.",
                code="FT-E0416 journal-unreadable",
            ) from None

    def save(self, entries: list[Entry]) -> None:
        gone = [entry.id for entry in entries if entry.state == "undone"][:-KEEP_UNDONE]
        entries[:] = [entry for entry in entries if entry.id not in gone]
        document = {"schema": SCHEMA, "entries": [_to_json(entry) for entry in entries]}
        write_json(self.file, document)

    def settle(self) -> list[Entry]:
        """Finds out how a write ended whose process was killed, and returns the entries."""
        entries = self.entries()
        if not any(entry.state == "pending" for entry in entries):
            return entries
        kept = []
        for entry in entries:
            if entry.state == "pending":
                if entry.temporary:
                    Path(entry.temporary).unlink(missing_ok=True)
                if digest(read_or_none(entry.target)) != entry.sha_after:
                    for folder in entry.made_folders:
                        with contextlib.suppress(OSError):
                            Path(folder).rmdir()
                    continue
                finish(entry, entries)
            kept.append(entry)
        self.save(kept)
        return kept


def finish(entry: Entry, entries: list[Entry]) -> None:
    """The write has happened."""
    entry.state = "undone" if entry.undoes or not entry.keys else "done"
    for other in entries:
        if other.id in entry.undoes:
            other.state = "undone"


def active(entries: list[Entry], owner: str | None = None) -> dict[Path, list[Entry]]:
    """The writes that stand, by file, oldest first."""
    found: dict[Path, list[Entry]] = {}
    for entry in entries:
        if entry.state == "done" and owner in (None, entry.owner):
            found.setdefault(entry.target, []).append(entry)
    return found


def new_entry(
    owner: str,
    target: Path,
    format_: str,
    before: bytes | None,
    after: bytes | None,
    keys: list[KeyChange],
    undoes: list[str],
) -> Entry:
    return Entry(
        id="",
        owner=owner,
        path=str(target),
        format=format_,
        sha_before=digest(before),
        sha_after=digest(after),
        keys=[
            {"key": list(c.key), "had": c.had, "old": c.old, "written": c.written, "removed": c.removed} for c in keys
        ],
        undoes=undoes,
        made_folders=[],
        temporary="",
        state="pending",
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        ft_version=__version__,
    )


def read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def backups_of(paths: Paths, entry: Entry) -> Backups:
    return Backups.of(paths, entry.owner, entry.target)


def _to_json(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Entry.__slots__}
