"""What we wrote is taken back: byte for byte where nobody else wrote since, key by key where somebody did."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftagent.errors import NotHere
from ftagent.files.backups import Backups, digest
from ftagent.files.formats import parsed
from ftagent.files.journal import Entry, Journal, active, backups_of, read_or_none
from ftagent.files.keys import Edit, Key, KeyChange, applied, find, same
from ftagent.files.writing import FilePlan, commit, plan_content, plan_edits
from ftagent.paths import Paths

_WAYS_ON = "Correct the file, or put a whole backup back: ft restore --list, ft restore AGENT --to ID"


@dataclass(frozen=True, slots=True)
class Undo:
    """`whole`: the very bytes from before. `left`: keys that somebody changed since; they stay as they are."""

    plan: FilePlan
    whole: bool
    left: list[Key] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # that we made for it; removed when they are empty


def plan_undo(paths: Paths, owner: str | None) -> list[Undo]:
    """One for each file that holds something of ours. Touches nothing. Raises Refused for a file that does not parse."""
    return [_undo(paths, entries) for entries in active(Journal(paths).entries(), owner).values()]


def plan_back_to(paths: Paths, entry: Entry, backup: str) -> Undo:
    """The whole content of one backup. Raises NotHere."""
    backups = backups_of(paths, entry)
    try:
        content = backups.content(backup)
    except OSError:
        raise NotHere(f"There is no backup {backup} of {entry.path}.", "ft restore --list") from None
    stands = active(Journal(paths).entries()).get(entry.target, [])
    since = [other.id for other in stands if backup.startswith("original") or _time(other.id) >= _time(backup)]
    folders = [folder for other in stands for folder in other.made_folders] if content is None else []
    return Undo(plan_content(entry.owner, entry.target, content, entry.format, since), True, [], folders)


def perform(undo: Undo, paths: Paths) -> None:
    commit(undo.plan, paths)
    for folder in undo.folders:
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _undo(paths: Paths, entries: list[Entry]) -> Undo:
    first, last = entries[0], entries[-1]
    ids = [entry.id for entry in entries]
    present = read_or_none(last.target)
    unbroken = all(left.sha_after == right.sha_before for left, right in itertools.pairwise(entries))
    if unbroken and digest(present) == last.sha_after:
        with contextlib.suppress(OSError):  # the backup may have been pruned, or removed by hand
            before = Backups.of(paths, first.owner, first.target).content(first.id)
            if digest(before) == first.sha_before:
                folders = [folder for entry in entries for folder in entry.made_folders] if before is None else []
                return Undo(plan_content(first.owner, first.target, before, first.format, ids), True, [], folders)
    text = (present or b"").decode("utf-8", "replace")
    data = parsed(last.target, text, last.format, _WAYS_ON)
    edits: list[Edit] = []
    left: list[Key] = []
    for change in effective(entries):
        had, value = find(data, change.key)
        ours = not had if change.removed else had and same(value, change.written)
        if not ours:
            if had != change.had or (had and not same(value, change.old)):
                left.append(change.key)
        else:
            edits.append(Edit(change.key, change.old, remove=not change.had))
    plan = plan_edits(last.owner, last.target, edits, last.format, _WAYS_ON)
    return Undo(plan_content(last.owner, last.target, plan.after, last.format, ids), False, left)


def effective(entries: list[Entry]) -> list[KeyChange]:
    """Per key: what was there before the first write, and what the last one put there; the newest key first.

    A later write below or above an earlier one is one change with it, at the shorter key.
    """
    found: dict[Key, KeyChange] = {}
    for entry in entries:
        for change in entry.changes():
            above = next((key for key in found if len(key) < len(change.key) and change.key[: len(key)] == key), None)
            if above is not None and not found[above].removed:
                inner = Edit(change.key[len(above) :], change.written, change.removed)
                found[above] = replace(found[above], written=applied(found[above].written, inner))
                continue
            old = change.old
            for key in [key for key in found if len(key) > len(change.key) and key[: len(change.key)] == change.key]:
                below = found.pop(key)
                old = applied(old, Edit(key[len(change.key) :], below.old, remove=not below.had))
            first = found.pop(change.key, replace(change, old=old))
            found[change.key] = replace(change, had=first.had, old=first.old)
    return list(reversed(found.values()))


def _time(backup: str) -> int:
    digits = backup.partition("-")[0]
    return int(digits) if digits.isdigit() else 0
