"""How much each agent that is alive has changed in its project, as git counts it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from ftagent.paths import Paths
from ftagent.session.records import Session, held_leases

LIMIT_S = 5.0
# Nothing that a repository's own settings name is run.
_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "diff",
    "--shortstat",
    "--no-ext-diff",
    "--no-textconv",
)


async def diff_stats(paths: Paths, sessions: Sequence[Session]) -> dict[str, str]:
    """`3 files changed, 41 insertions(+)` by session id; nothing for a session that changed nothing or has no repository."""
    alive = set(held_leases(paths))
    folders = {s.id: str(s.field("project", "cwd") or "") for s in sessions if s.id in alive}
    counted = {folder: await _diff(folder) for folder in sorted({f for f in folders.values() if f.startswith("/")})}
    return {id_: counted[folder] for id_, folder in folders.items() if counted.get(folder)}


async def _diff(folder: str) -> str:
    if not Path(folder).is_dir():
        return ""
    try:
        process = await asyncio.create_subprocess_exec(
            *_GIT, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return ""
    try:
        async with asyncio.timeout(LIMIT_S):
            out, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return ""
    return out.decode("utf-8", "replace").strip() if process.returncode == 0 else ""
