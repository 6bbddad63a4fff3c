"""What each agent that is alive has changed in its project, as git counts it, and what is another now than at its launch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftagent.launch.kept import digest
from ftagent.paths import Paths
from ftagent.session.leases import held_leases
from ftagent.session.records import Session

LIMIT_S = 5.0
FILES, COLUMNS = 40, 72
# Nothing that a repository's own settings name is run.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_STAT = ("diff", f"--stat={COLUMNS}", "--no-color", "--no-ext-diff", "--no-textconv")
_NEW = ("ls-files", "--others", "--exclude-standard")


@dataclass(frozen=True, slots=True)
class Diff:
    """`stat`: `3 files changed, 41 insertions(+), 1 new`, empty where nothing is another; `files`: a line for each file."""

    stat: str = ""
    files: tuple[str, ...] = ()
    branch: str | None = None  # checked out now


async def diffs_of(paths: Paths, sessions: Sequence[Session]) -> dict[str, Diff]:
    """By session id, of those that are alive in a repository."""
    alive = set(held_leases(paths))
    folders = {s.id: str(s.field("project", "cwd") or "") for s in sessions if s.id in alive}
    counted = {folder: await _diff(folder) for folder in sorted({f for f in folders.values() if f.startswith("/")})}
    return {id_: found for id_, folder in folders.items() if (found := counted.get(folder)) is not None}


def changed_files(session: Session) -> list[str]:
    """Names of the files that its launch wrote and that are others now, or gone. Blocks on the disk."""
    changed = []
    for name, written in (session.field("written") or {}).items():
        with contextlib.suppress(OSError):
            path = Path(name)
            if not path.exists() or digest(path.read_text(encoding="utf-8", errors="replace")) != written:
                changed.append(path.name)
    return changed


async def _diff(folder: str) -> Diff | None:
    if not Path(folder).is_dir():
        return None
    printed = await _git(folder, *_STAT)
    if printed is None:
        return None
    *files, last = printed.splitlines() or [""]
    new = len((await _git(folder, *_NEW) or "").splitlines())
    stat = ", ".join(part for part in (last.strip(), f"{new} new" if new else "") if part)
    branch = (await _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or "").strip()
    return Diff(stat, tuple(line.strip() for line in files[:FILES]), branch or None)


async def _git(folder: str, *words: str) -> str | None:
    """What it prints; None where it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *_GIT, *words, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return None
    try:
        async with asyncio.timeout(LIMIT_S):
            out, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    return out.decode("utf-8", "replace") if process.returncode == 0 else None
