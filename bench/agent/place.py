"""A place for one run: a fresh home, a scratch project, and a network namespace with loopback only where there may be one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "agents"
FT = Path(sys.executable).parent / "ft"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NAMESPACE = ["unshare", "-n", "-p", "--fork", "--kill-child", "--mount-proc"]


class Place:
    """`folder` is empty and ours. `env` is the whole environment of what runs here. `apart`: without the network of the machine,
    its loopback included."""

    def __init__(self, folder: Path, models_dir: Path, apart: bool = True) -> None:
        self.folder = folder
        self.home, self.project, self.tokens = folder / "home", folder / "project", folder / "tokens" / "tokens.jsonl"
        self.home.mkdir()
        self.namespace = apart and _namespace()
        self.env = {
            "HOME": str(self.home),
            "FT_HOME": str(folder / "ft"),
            "FT_MODELS_DIR": str(models_dir),
            "FT_RECORD_DIR": str(self.tokens.parent),
            "PATH": SYSTEM_PATH,
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": os.environ.get("USER", "user"),
        }
        if not self.namespace:
            self.env["FT_PORT"] = str(_free_port())

    def install(self, agent: str) -> None:
        """Puts the pinned agent on this place's PATH: the one the tests use. Ends the run when it cannot be had."""
        done = subprocess.run([sys.executable, str(TESTS / "install.py"), agent], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"agent: {agent} cannot be installed: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        folders = [str(Path(found["executable"]).parent), *found["path"]]
        self.env["PATH"] = os.pathsep.join([*folders, self.env["PATH"]])

    def repository(self, source: Path | None) -> None:
        """The project: a git repository with one commit."""
        if source is None:
            self.project.mkdir()
        else:
            shutil.copytree(source, self.project)
        for path in self.project.rglob("*.txt"):  # kept under another name, so that no test runner picks it up
            if path.name.endswith(".py.txt"):
                path.rename(path.with_suffix(""))

    def commit(self) -> None:
        for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "Start"]):
            self._git(*command)

    def diff(self) -> str:
        """What the work changed, new files included."""
        self._git("add", "-A")
        return self._git(
            "diff", "--cached", "--no-color", "--no-ext-diff", "--", ".", ":(exclude,glob)**/__pycache__/**"
        )

    def check(self, command: Sequence[str]) -> str | None:
        """The project's own tests; what they said when they failed."""
        done = subprocess.run(
            command,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=60,
            env={**self.env, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]

    def run(self, commands: Sequence[tuple[list[str], float]]) -> list[dict[str, Any]]:
        """Results {code, stdout, stderr, wall_s} of commands with their limits in seconds, one after another, in the project."""
        report, spec = self.folder / "report.json", self.folder / "spec.json"
        spec.write_text(
            json.dumps(
                {
                    "cwd": str(self.project),
                    "env": self.env,
                    "report": str(report),
                    "commands": [{"argv": argv, "timeout_s": limit} for argv, limit in commands],
                }
            )
        )
        if not self.namespace:
            return [self._plain(argv, limit) for argv, limit in commands]
        user = [] if os.geteuid() == 0 else ["-r"]
        inside = [*NAMESPACE, *user, sys.executable, str(TESTS / "inside.py"), str(spec)]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=sum(limit for _, limit in commands) + 30)
        if done.returncode:
            sys.exit(f"agent: the namespace could not be set up: {done.stderr.strip()}")
        found: list[dict[str, Any]] = json.loads(report.read_text())["results"]
        return found

    def _plain(self, argv: list[str], limit: float) -> dict[str, Any]:
        try:
            done = subprocess.run(
                argv,
                cwd=self.project,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return {"argv": argv, "code": None, "stdout": "", "stderr": "", "wall_s": limit}
        return {"argv": argv, "code": done.returncode, "stdout": done.stdout, "stderr": done.stderr, "wall_s": None}

    def _git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", *arguments]
        return subprocess.run(
            command, cwd=self.project, check=True, env=self.env, capture_output=True, text=True
        ).stdout


def _free_port() -> int:
    """That of an engine may be taken by the user's own one."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def _namespace() -> bool:
    user = [] if os.geteuid() == 0 else ["-r"]
    return subprocess.run([*NAMESPACE, *user, "true"], capture_output=True).returncode == 0
