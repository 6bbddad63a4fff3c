"""A place where a published agent meets the product: a namespace with loopback only, a fresh home, a scratch project."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harnesses.registry import GENERIC, ROOT, read_declaration
from tests.agents.homes import SECRETS, Hostile, text_of

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NAMESPACE = ("unshare", "-n", "-p", "--fork", "--kill-child", "--mount-proc")
KV_TOKENS = 128 * 1024
# A machine at work may answer late once; 3 says that no engine runs.
ASK_TWICE = '"$0" "$@"; code=$?; case $code in 0|3) exit $code;; esac; sleep 3; "$0" "$@"'
CALC = "def add(a, b):\n    return a - b\n"


@dataclass(frozen=True)
class Run:
    """What `ft launch` did: its exit code and output, the engine's record of each request, and attempts to leave."""

    code: int | None
    stdout: str
    stderr: str
    wall_s: float
    requests: list[dict[str, Any]]
    session: dict[str, Any]  # what the engine knows of it, after its end
    lookups: list[str]  # names that were looked up, besides localhost
    no_routes: int  # packets that had nowhere to go
    secrets: list[str]  # those of `Rig.secrets` that were seen in a packet of the namespace, between whomever

    def __str__(self) -> str:
        return f"exit code {self.code} after {self.wall_s} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class Rig:
    def __init__(self, folder: Path, models_dir: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.project = folder / "project"
        self.secrets: list[str] = []
        self.kept: dict[Path, str] = {}  # files of the user that must not change
        self.ft = BIN / "ft"
        self.home.mkdir()
        self.project.mkdir()
        (self.project / "calc.py").write_text(CALC)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
        for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "start"]):
            subprocess.run([*git, *command], cwd=self.project, check=True, env={**os.environ, "HOME": str(self.home)})
        self.env = {
            "HOME": str(self.home),
            "FT_HOME": str(folder / "ft"),
            "FT_MODELS_DIR": str(models_dir),
            "FT_KV": str(KV_TOKENS),
            "PATH": SYSTEM_PATH,
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": os.environ.get("USER", "root"),
        }

    def install(self, agent: str) -> None:
        """Puts a pinned agent on this rig's PATH; skips the test only where npm is absent."""
        done = subprocess.run([sys.executable, str(HERE / "install.py"), agent], capture_output=True, text=True)
        if "npm is not installed" in done.stderr:
            pytest.skip(f"{agent} cannot be installed: npm is not installed")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        folders = [str(Path(found["executable"]).parent), *found["path"]]
        self.env["PATH"] = os.pathsep.join([*folders, self.env["PATH"]])

    def compute_nothing(self) -> None:
        """For what is not about what a model computes: `ft` starts an engine whose front is real and whose worker is not."""
        self.ft = self.folder / "ft.sh"
        self.ft.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(HERE / "fake_engine_ft.py")])} "$@"\n')
        self.ft.chmod(0o755)

    def keep(self, path: str, text: str) -> None:
        """A file of the user, below the home or, when `path` begins with `project/`, in the project."""
        target = self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def make_hostile(self, hostile: Hostile) -> None:
        """Furnishes home, project and shell with what wants an agent elsewhere; its keys are looked for on the wire."""
        for path, content in hostile.files.items():
            self.keep(path, text_of(path, content, str(self.project)))
        self.env |= hostile.env
        self.secrets = SECRETS
        kept = [self.place(path) for path in hostile.files if path not in hostile.changing]
        self.kept |= {path: path.read_text() for path in kept}

    def assert_nothing_left(self, run: Run) -> None:
        """Nothing but our engine was asked, no key was seen on the wire, no helper ran, the user's files are as they were."""
        assert (run.lookups, run.no_routes) == ([], 0), f"something tried to leave this machine: {run}"
        assert run.secrets == [], "a real key was sent, if only on this machine"
        assert not list(self.folder.rglob("helper-ran")), "a helper was asked for a key"
        for path, text in self.kept.items():
            assert path.read_text() == text, f"{path} was changed"

    def place(self, path: str) -> Path:
        return self.project / path.removeprefix("project/") if path.startswith("project/") else self.home / path

    def run(
        self, *commands: list[str], timeout_s: float, at_once: int = 1, after: Sequence[list[str]] = ()
    ) -> dict[str, Any]:
        """Runs commands in the namespace, one by one or so many at once, and `after` them others; gives inside.py's report."""
        report, spec_path = self.folder / "report.json", self.folder / "spec.json"
        spec = {
            "cwd": str(self.project),
            "env": self.env,
            "report": str(report),
            "secrets": self.secrets,
            "at_once": at_once,
        }
        for name, these in (("commands", commands), ("after", after)):
            spec[name] = [{"argv": command, "timeout_s": timeout_s} for command in these]
        spec_path.write_text(json.dumps(spec))
        user = ("-r",) if os.geteuid() != 0 else ()
        inside = [*NAMESPACE, *user, sys.executable, str(HERE / "inside.py"), str(spec_path)]
        done = subprocess.run(
            inside, capture_output=True, text=True, timeout=timeout_s * (len(commands) + len(after)) + 90
        )
        assert done.returncode == 0, f"the namespace could not be set up: {done.stderr}"
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def launch(
        self,
        agent: str,
        *args: str,
        model: str,
        timeout_s: float,
        script: dict[str, Any] | None = None,
        options: Sequence[str] = (),
        through: str = "",
        plan: dict[str, Any] | None = None,
        before: Sequence[list[str]] = (),
    ) -> Run:
        """`ft launch AGENT` as a person would type it, engine and agent inside the namespace. `options` are ft's own.

        `through`: a program of this folder that starts it and does what `plan` says, such as typist.py. `before`: commands
        of the user's own, in the same namespace.
        """
        options = ["-m", model, *options]
        if script is not None:
            path = self.folder / "script.json"
            path.write_text(json.dumps(script))
            options += ["--script", str(path)]
        ft = str(self.ft)
        command = [ft, "launch", agent, *options, "--", *args]
        if through:
            path = self.folder / "plan.json"
            text = json.dumps({**(plan or {}), "argv": command, "folder": str(self.folder)})
            path.write_text(text.replace("{cwd}", str(self.project)))
            command = [sys.executable, str(HERE / through), str(path)]
        seen = self.run(
            *before,
            command,
            ["sh", "-c", ASK_TWICE, ft, "ctl", "requests", "--json", "-n", "100"],
            ["sh", "-c", ASK_TWICE, ft, "ctl", "explain", "--json"],
            [ft, "engine", "stop"],
            timeout_s=timeout_s,
        )
        launched, listed, explained, _ = seen["results"][len(before) :]
        assert listed["code"] in (0, 3), listed
        requests = json.loads(listed["stdout"])["requests"] if listed["code"] == 0 else []
        return Run(
            code=launched["code"],
            stdout=launched["stdout"],
            stderr=launched["stderr"] + self._engine_log(),
            wall_s=launched["wall_s"],
            requests=requests,
            session=json.loads(explained["stdout"])["session"] if explained["code"] == 0 else {},
            lookups=[name for name in seen["names"] if name != "localhost"],
            no_routes=seen["no_routes"],
            secrets=sent(seen, agent),
        )

    def _engine_log(self) -> str:
        log = self.folder / "ft" / "state" / "logs" / "engine.log"
        return f"\n--- engine log\n{log.read_text()[-4000:]}" if log.exists() else ""


def sent(seen: dict[str, Any], agent: str = "") -> list[str]:
    """Of a report of inside.py: the secrets in packets, whoever sent them to whom.

    An agent whose card says that a server of its own tells its client the settings may tell them itself.
    """
    itself = bool(agent) and declaration(agent).get("card", {}).get("own_server", False)
    return sorted({secret for secret, listener in seen["secrets"] if not itself or listener != agent})


def declaration(agent: str) -> dict[str, Any]:
    return read_declaration(ROOT / (agent if agent != "run" else GENERIC))


@pytest.fixture
def rig(tmp_path: Path, models_dir: Path) -> Rig:
    return Rig(tmp_path, models_dir)


@pytest.fixture(scope="session")
def new_rig(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Callable[[], Rig]:
    """For tests with several places at once."""
    return lambda: Rig(tmp_path_factory.mktemp("rig"), models_dir)
