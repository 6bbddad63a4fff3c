"""A change of one file of the user: planned first, then written under a lock, and only if nobody changed the file between.

plan -> diff -> lock -> compare -> backup -> journal (pending) -> temporary file, fsync, rename -> read back -> journal (done).
Killed at any point, the file holds the old bytes or the new ones, and the next writer finds out which.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftagent.atomic import sync_folder, write_bytes
from ftagent.errors import FtError, Refused
from ftagent.files.backups import Backups
from ftagent.files.formats import WAYS_ON, edited, format_of, parsed
from ftagent.files.journal import Journal, finish, new_entry, read_or_none
from ftagent.files.keys import Edit, KeyChange, applied, change_of, find, same
from ftagent.paths import Paths, ensure


@dataclass(frozen=True, slots=True)
class FilePlan:
    """`before`/`after` are None where there is no file. `target` is `path` with links followed: the link stays one."""

    owner: str
    path: Path
    target: Path
    format: str
    before: bytes | None
    after: bytes | None
    mode: int
    uid_gid: tuple[int, int] | None  # None: ours
    keys: list[KeyChange] = field(default_factory=list)
    undoes: list[str] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        return self.before != self.after


def plan_edits(
    owner: str, path: Path, edits: Sequence[Edit], format_: str | None = None, ways_on: str = WAYS_ON
) -> FilePlan:
    """Touches nothing. Raises Refused for a file that cannot be parsed, followed, or changed without touching other keys."""
    format_ = format_ or format_of(path)
    target, before, mode, uid_gid = _look(path)
    text = _text(path, before)
    data = parsed(path, text, format_, ways_on)
    first = data
    needed: list[Edit] = []
    for edit in edits:
        had, present = find(data, edit.key)
        if (edit.remove and not had) or (not edit.remove and had and same(present, edit.value)):
            continue
        needed.append(edit)
        data = applied(data, edit) if _reachable(data, edit) else data
    after = edited(path, text, format_, needed, ways_on).encode() if needed else before
    changes = {change.key: change for change in (change_of(first, edit) for edit in needed)}
    keys = [replace(change, written=find(data, change.key)[1]) for change in changes.values()]
    return FilePlan(owner, path, target, format_, before, after, mode, uid_gid, keys)


def plan_content(owner: str, path: Path, after: bytes | None, format_: str, undoes: Sequence[str] = ()) -> FilePlan:
    """The whole file, as it was once."""
    target, before, mode, uid_gid = _look(path)
    return FilePlan(owner, path, target, format_, before, after, mode, uid_gid, undoes=list(undoes))


def commit(plan: FilePlan, paths: Paths) -> str | None:
    """Writes it; returns the id of the backup, None when there was nothing to change.

    Raises Refused when the file is no longer what the plan saw, Conflict when another ft is writing.
    """
    journal = Journal(paths)
    with _no_interruption(), journal.locked():
        entries = journal.settle()
        if read_or_none(plan.target) != plan.before:
            raise Refused(
                f"{plan.path} was changed by another program meanwhile; it was not written.",
                "Run the command again.",
                code="FT-E0417 file-changed",
            )
        if not plan.changes:
            if plan.undoes:
                entry = new_entry(plan.owner, plan.target, plan.format, plan.before, plan.after, [], plan.undoes)
                finish(entry, entries)
                journal.save(entries)
            return None
        backups = Backups.of(paths, plan.owner, plan.target)
        entry = new_entry(plan.owner, plan.target, plan.format, plan.before, plan.after, plan.keys, plan.undoes)
        entry.id = backups.keep(plan.before, plan.after)
        entry.temporary = str(plan.target.with_name(f".{plan.target.name}.ft-{entry.id}"))
        entry.made_folders = [str(f) for f in (plan.target.parent, *plan.target.parent.parents) if not f.exists()]
        entries.append(entry)
        journal.save(entries)
        _replace(plan, Path(entry.temporary))
        _read_back(plan)
        finish(entry, entries)
        journal.save(entries)
        backups.prune()
        return entry.id


def _replace(plan: FilePlan, temporary: Path) -> None:
    if plan.after is None:
        plan.target.unlink()
        sync_folder(plan.target.parent)
        return
    if not plan.target.parent.exists():
        ensure(plan.target.parent)
    write_bytes(plan.target, plan.after, plan.mode, plan.uid_gid, temporary)


def _read_back(plan: FilePlan) -> None:
    """Raises FtError, with the old bytes back in place, when the disk does not hold what was written."""
    found = read_or_none(plan.target)
    if found == plan.after:
        return
    if plan.before is not None:
        write_bytes(plan.target, plan.before, plan.mode, plan.uid_gid)
    raise FtError(
        f"{plan.path} could not be written: it reads back otherwise. The old content is in place.", "Try again."
    )


def _look(path: Path) -> tuple[Path, bytes | None, int, tuple[int, int] | None]:
    """Where the bytes are, what they are, and with which mode and owner they are written again. Raises Refused."""
    try:
        target = path.resolve(strict=False)
        if target.is_symlink():
            raise RuntimeError("a loop of links")
        found = target.stat()
    except FileNotFoundError:
        return target, None, 0o600, None
    except (OSError, RuntimeError) as error:
        raise Refused(f"{path} cannot be followed: {error}.", "Repair the link.") from None
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path} is no regular file.", "Move it away.")
    if not found.st_mode & stat.S_IWUSR or not os.access(target, os.W_OK):
        raise Refused(f"{path} is write-protected.", f"chmod u+w {target}")
    if found.st_nlink > 1:
        raise Refused(
            f"{path} has {found.st_nlink} names (hard links); writing it would part them.", "Make it a copy or a link."
        )
    ours = found.st_uid == os.geteuid()
    if not ours and os.geteuid() != 0:
        raise Refused(f"{path} belongs to another user.", "Run this as its owner.")
    try:
        data = target.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.", "Correct its permissions.") from None
    return target, data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)


def _text(path: Path, data: bytes | None) -> str:
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        good = (data or b"")[: error.start]
        line, column = good.count(b"\n") + 1, len(good) - (good.rfind(b"\n") + 1) + 1
        raise Refused(
            f"{path}:{line}:{column}: not valid UTF-8; the file was not changed.",
            WAYS_ON,
            code="FT-E0412 config-unparseable",
        ) from None


def _reachable(data: object, edit: Edit) -> bool:
    """Whether every table on the way is one, or missing; what is neither is refused by `edited`, with its place."""
    for depth in range(len(edit.key)):
        had, value = find(data, edit.key[:depth])
        if had and not isinstance(value, dict):
            return False
    return True


@contextlib.contextmanager
def _no_interruption() -> Iterator[None]:
    """Ctrl-C and a polite end wait until the file is whole."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
