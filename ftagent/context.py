"""What every command is handed: paths, environment, settings, and how to print."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftagent.output import Style, note, wants_colour
from ftagent.paths import Paths
from ftagent.settings.config import Settings, load_settings
from ftagent.settings.trust import trusted_by


@dataclass(frozen=True, slots=True)
class Context:
    paths: Paths
    env: Mapping[str, str]
    cwd: Path
    debug: bool
    colour: str  # auto | always | never
    no_input: bool = False

    def settings(self, flags: Mapping[str, Any] | None = None, project: Path | None = None) -> Settings:
        """Reads the files; prints their warnings on stderr."""
        settings = load_settings(
            self.paths.config_file, project or find_project(self.cwd), self.env, flags, trusted_by(self.paths)
        )
        for warning in settings.warnings:
            note(f"ft: warning: {warning}")
        return settings

    @property
    def may_ask(self) -> bool:
        """Whether a person can be asked: a terminal to read from and one to ask on, no `CI`, no --no-input."""
        return not self.no_input and not self.env.get("CI") and sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> bool:
        """Asks on stderr; anything but y or yes is no. Only where `may_ask`."""
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def models_dir(self, settings: Settings) -> Path:
        chosen = settings.optional_text("models_dir")
        return Path(chosen).expanduser().resolve() if chosen else self.paths.models

    @property
    def out(self) -> Style:
        return Style(wants_colour(sys.stdout, self.env, self.colour))

    @property
    def err(self) -> Style:
        return Style(wants_colour(sys.stderr, self.env, self.colour))


def find_project(cwd: Path) -> Path:
    """The folder with `.git` at or above `cwd`, else `cwd` itself."""
    return next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)


def git_branch(project: Path) -> str | None:
    """Read from `.git/HEAD`, so that a dry run starts no process; a worktree's `.git` file is followed."""
    git = project / ".git"
    try:
        if git.is_file():
            git = (project / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()).resolve()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:12] or None
