"""Git worktrees of sessions: made by `git worktree add`, recorded, and made again on resume when they are gone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from ftagent.errors import Conflict, NotHere, Refused, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def plan_worktree(project: Path, name: str, own: bool) -> dict[str, Any]:
    """What is recorded. `own`: Claude Code makes it itself, in its own place. Raises UsageError or NotHere."""
    if not _NAME.fullmatch(name) or name.endswith((".lock", ".")) or ".." in name:
        raise UsageError(f"--worktree {name!r}: expected letters, digits, dots, dashes.", "Choose another name.")
    if not (project / ".git").exists():
        raise NotHere(f"{project} is no git work tree.", "git init, or leave --worktree out.")
    if own:
        return {"path": str(project / ".claude" / "worktrees" / name), "branch": f"worktree-{name}", "by": "claude"}
    path = project.with_name(f"{project.name}.worktrees") / name
    return {"path": str(path), "branch": f"ft/{name}", "by": "ft"}


def add_worktree(project: Path, worktree: dict[str, Any]) -> None:
    """Makes it, on its branch when that is there. Raises Conflict when the folder is taken, Refused when git refuses."""
    path, branch = Path(worktree["path"]), str(worktree["branch"])
    if path.exists():
        raise Conflict(f"{path} exists.", "Choose another name: --worktree NAME", code="FT-E0613 worktree-taken")
    known = _git(project, "rev-parse", "-q", "--verify", f"refs/heads/{branch}").returncode == 0
    _git(project, "worktree", "prune")
    done = _git(project, "worktree", "add", "-q", str(path), *([branch] if known else ["-b", branch]))
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Refused(f"git made no worktree: {reason}.", f"git -C {project} worktree add {path}")


def _git(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(project), *arguments], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        raise NotHere("git is not installed.", "Install git, or leave --worktree out.") from None
    except subprocess.TimeoutExpired:
        raise Refused("git did not answer within a minute.", "Try it yourself: git worktree add") from None
