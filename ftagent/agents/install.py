"""Agents in a folder of our own, from the registry where their makers publish them; no script is fetched and piped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ftagent.errors import AgentCannotRun, FtError, NotHere, UsageError
from ftagent.paths import Paths, ensure
from harnesses.contract import Harness

_PACKAGE = re.compile(r"(@[a-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?")
_VERSION = re.compile(r"[0-9][\w.+-]*")
_SOURCES = (
    "npm_config_registry",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_USERCONFIG",
    "NPM_CONFIG_CACHE",
    "npm_config_cache",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The `[install]` table of a harness.toml."""

    agent: str
    method: str  # npm | pypi
    package: str
    version: str  # known to be good
    executable: str

    def with_version(self, version: str) -> Recipe:
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{version!r} is no version.", f"ft agents install {self.agent}")
        return replace(self, version=version)


def recipe_of(harness: Harness) -> Recipe | None:
    """None when the harness has none. Raises FtError for one that names something else than a package and a version."""
    table = harness.declaration.get("install")
    if not isinstance(table, dict):
        return None
    try:
        recipe = Recipe(harness.name, *(str(table[name]) for name in ("method", "package", "version", "executable")))
        if recipe.method not in ("npm", "pypi") or not _PACKAGE.fullmatch(recipe.package):
            raise ValueError(f"{recipe.method} {recipe.package}")
        if not _VERSION.fullmatch(recipe.version) or Path(recipe.executable).name != recipe.executable:
            raise ValueError(f"{recipe.version} {recipe.executable}")
    except (KeyError, ValueError) as error:
        raise FtError(
            f"The [install] table of {harness.name!r} is not valid: {error}.",
            "Correct its harness.toml.",
            code="FT-E0110 broken-harness",
        ) from None
    return recipe


def folder_of(paths: Paths, recipe: Recipe) -> Path:
    return paths.agents / recipe.agent / recipe.version


def link_of(paths: Paths, recipe: Recipe) -> Path:
    """What `ft launch` finds."""
    return paths.agents / "bin" / recipe.executable


def program_of(paths: Paths, recipe: Recipe) -> Path:
    inside = "node_modules/.bin" if recipe.method == "npm" else "venv/bin"
    return folder_of(paths, recipe) / inside / recipe.executable


def installed_version(paths: Paths, recipe: Recipe) -> str | None:
    """Of the one that is linked; None when there is none, or its files are gone."""
    link = link_of(paths, recipe)
    if not link.exists():
        return None
    try:
        return link.readlink().relative_to(paths.agents / recipe.agent).parts[0]
    except (OSError, ValueError):
        return None


def steps(paths: Paths, recipe: Recipe) -> list[list[str]]:
    """The commands, in order: argument lists, no shell."""
    folder = str(folder_of(paths, recipe))
    if recipe.method == "npm":
        wanted = f"{recipe.package}@{recipe.version}"
        return [
            [
                "npm",
                "install",
                "--prefix",
                folder,
                "--no-save",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                wanted,
            ]
        ]
    python = str(folder_of(paths, recipe) / "venv" / "bin" / "python")
    return [
        [sys.executable, "-m", "venv", str(folder_of(paths, recipe) / "venv")],
        [python, "-m", "pip", "--disable-pip-version-check", "install", f"{recipe.package}=={recipe.version}"],
    ]


def install(paths: Paths, recipe: Recipe, env: Mapping[str, str]) -> Path:
    """The link to the program. An older version stays linked until the new one is there.

    Raises NotHere without npm, FtError when a step fails; what it left behind is removed.
    """
    from ftagent.launch.environment import filter_environment

    if recipe.method == "npm" and shutil.which("npm", path=env.get("PATH", os.defpath)) is None:
        raise NotHere("npm is not installed.", "Install Node.js, which brings npm")
    for folder in (paths.data, paths.agents, paths.agents / recipe.agent, paths.agents / "bin"):
        ensure(folder)
    target = folder_of(paths, recipe)
    if target.exists():
        shutil.rmtree(target)
    ensure(target)
    try:
        for step in steps(paths, recipe):
            code = subprocess.run(
                step, env=_environment(paths, env, filter_environment(env).kept), check=False, cwd=target
            ).returncode
            if code != 0:
                raise FtError(f"{step[0]} ended with code {code}.", "Its own message stands above.")
        program = program_of(paths, recipe)
        if not program.exists():
            raise AgentCannotRun(
                f"{recipe.package} was installed but has no {recipe.executable}.", "Install it yourself."
            )
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    link = link_of(paths, recipe)
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(program)
    temporary.replace(link)
    for other in (paths.agents / recipe.agent).iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)
    return link


def _environment(paths: Paths, env: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """No credentials for code that an installation may run; where packages come from stays as the user has set it, and what
    is downloaded on the way lies in our own cache, so that nothing of an installation is anywhere else."""
    given = {name: value for name, value in kept.items() if not name.startswith("PYTHON")}
    given |= {name: env[name] for name in _SOURCES if name in env}
    caches = {"npm_config_cache": paths.cache / "npm", "PIP_CACHE_DIR": paths.cache / "pip"}
    for name, folder in caches.items():
        if name not in given and name.upper() not in given:
            given[name] = str(folder)
    return given
