"""The agent's program on PATH: the first candidate that can run, with a reason for each one passed over."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ftagent.atomic import read_json, write_json
from ftagent.errors import AgentCannotRun, AgentMissing
from ftagent.paths import Paths, ensure

PROBE_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Found:
    """`path` is None when nothing on PATH can run; `skipped` says why candidates were passed over."""

    path: Path | None
    skipped: list[str] = field(default_factory=list)
    not_runnable: bool = False  # something of that name exists

    def require(self, title: str, install_hint: str) -> Path:
        """Raises AgentMissing (127) or AgentCannotRun (126)."""
        if self.path is not None:
            return self.path
        if self.not_runnable:
            raise AgentCannotRun(f"{title} cannot run: " + "; ".join(self.skipped) + ".", f"Install it: {install_hint}")
        raise AgentMissing(f"{title} is not installed.", f"Install it: {install_hint}")


def _interpreter_missing(path: Path, search_path: str) -> str | None:
    """The interpreter a script names that does not exist; None for binaries and working scripts."""
    try:
        with path.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if not words:
        return None
    if Path(words[0]).name == "env":
        programs = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if programs and not _on_path(programs[0], search_path):
            return programs[0]
        return None
    return None if Path(words[0]).exists() else words[0]


def _on_path(program: str, search_path: str) -> bool:
    return any(os.access(Path(folder or ".") / program, os.X_OK) for folder in search_path.split(os.pathsep))


def _is_windows_program(path: Path) -> bool:
    if path.suffix.lower() in (".exe", ".cmd", ".bat", ".ps1"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) == b"MZ"
    except OSError:
        return False


def _fault(path: Path, search_path: str) -> str | None:
    """Why this candidate cannot run; None when it can."""
    if not os.access(path, os.X_OK):
        return "is not executable"
    if _is_windows_program(path):
        return "is a Windows program, whose loopback is another one"
    missing = _interpreter_missing(path, search_path)
    return f"is a script for {missing}, which is missing" if missing else None


def find_executable(names: Sequence[str], search_path: str) -> Found:
    """Reads file heads only; starts nothing."""
    skipped: list[str] = []
    for name in names:
        for folder in [""] if os.sep in name else search_path.split(os.pathsep):
            for path in (Path(folder or ".") / name, Path(folder or ".") / f"{name}.exe"):
                if not path.is_file():
                    continue
                fault = _fault(path, search_path)
                if fault is None:
                    return Found(path.absolute(), skipped)
                skipped.append(f"{path} {fault}")
    return Found(None, skipped, not_runnable=bool(skipped))


def agent_path(env: Mapping[str, str], paths: Paths) -> str:
    """Where agents are looked for: what `ft agents install` installed was asked for by name and goes first, then PATH."""
    ours = paths.agents / "bin"
    path = env.get("PATH", os.defpath)
    return f"{ours}{os.pathsep}{path}" if ours.is_dir() else path


def _cache_key(path: Path) -> tuple[str, str]:
    real = path.resolve()
    status = real.stat()
    return str(real), f"{status.st_size}:{status.st_mtime_ns}"


def cached_version(path: Path | None, paths: Paths) -> str | None:
    """The version seen the last time this very file (path, size, mtime) was launched; never runs it."""
    if path is None:
        return None
    try:
        name, stamp = _cache_key(path)
    except OSError:
        return None
    entry = (read_json(paths.cache / "agents.json") or {}).get(name)
    return str(entry["version"]) if isinstance(entry, dict) and entry.get("stamp") == stamp else None


def probe_version(
    path: Path, arguments: Sequence[str], env: Mapping[str, str], paths: Paths, unmade: Path | None = None
) -> str | None:
    """The cached version, else the program's own answer, which is cached. None when it does not tell in time.

    `unmade`: a folder that `env` names and that stays unmade, though several agents make theirs at any start.
    """
    known = cached_version(path, paths)
    if known is not None or not arguments:
        return known
    import tempfile

    try:
        with tempfile.TemporaryDirectory(prefix="ft-") as place:
            answer = subprocess.run(
                [str(path), *arguments],
                env={name: value.replace(str(unmade), place) if unmade else value for name, value in env.items()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_LIMIT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = version_in(answer.stdout or answer.stderr)
    if answer.returncode != 0 or version is None:
        return None
    name, stamp = _cache_key(path)
    file = ensure(paths.cache) / "agents.json"
    write_json(file, {**(read_json(file) or {}), name: {"stamp": stamp, "version": version}})
    return version


def version_in(text: str) -> str | None:
    """The first word that looks like `1.2` or `1.2.3-x`, without a leading v."""
    import re

    match = re.search(r"\bv?(\d+\.\d+(?:\.\d+)*(?:[-+.][0-9A-Za-z.]+)?)\b", text)
    return match[1] if match else None


def in_range(version: str, wanted: str) -> bool:
    """Whether `2.1.332` satisfies `>=2.1.300, <2.2`. Only the numeric parts count."""
    import re

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[-+]", text)[0]))

    ours = numbers(version)
    for clause in wanted.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|<|>)?\s*([0-9][\w.+-]*)\s*", clause)
        if match is None:
            continue
        bound = numbers(match[2])
        width = max(len(ours), len(bound))
        left, right = (part + (0,) * (width - len(part)) for part in (ours, bound))
        operator = match[1] or "=="
        ok = {">=": left >= right, "<=": left <= right, "==": left == right, "<": left < right, ">": left > right}
        if not ok[operator]:
            return False
    return True
