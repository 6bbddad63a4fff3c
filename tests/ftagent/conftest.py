"""A home of its own for each test, agents made of a few lines of shell, and `ft` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

HERE = Path(__file__).parent
REAL_FT = [sys.executable, "-P", "-m", "ftagent"]
FAKE_FT = [sys.executable, "-P", str(HERE / "fake_ft.py")]


@dataclass
class Sandbox:
    """`home`, `ft_home`, `project` and `bin` below one folder; `run` starts ft there with exactly `env`."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.home, self.ft_home, self.project, self.bin):
            folder.mkdir(parents=True, exist_ok=True)
        (self.project / ".git").mkdir()
        (self.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        self.env = {
            "HOME": str(self.home),
            "FT_HOME": str(self.ft_home),
            "FT_PORT": str(free_port()),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    @property
    def fake_ft(self) -> list[str]:
        return FAKE_FT

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def ft_home(self) -> Path:
        return self.root / "ft"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def runtime(self) -> Path:
        return self.ft_home / "runtime"

    def agent(self, script: str, name: str = "pi", shebang: str = "#!/bin/sh") -> Path:
        """An executable on PATH that answers --version and then does what `script` says."""
        path = self.bin / name
        path.write_text(f'{shebang}\n[ "$1" = --version ] && echo "{name} 0.73.1" && exit 0\n{script}\n')
        path.chmod(0o755)
        return path

    def model(self, name: str = "smollm2-moe", **fields: Any) -> None:
        folder = self.ft_home / "data" / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ftw.json").write_text(json.dumps({"window_tokens": 65536, "quality": "toy", **fields}))

    def run(self, *arguments: str, fake: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("cwd", self.project)
        options.setdefault("timeout", 300)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*(FAKE_FT if fake else REAL_FT), *arguments], env=env, capture_output=True, text=True, **options
        )

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """`ft` with the fake engine, not waited for."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("cwd", self.project)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([*FAKE_FT, *arguments], env=env, text=True, **options)

    def engine_starts(self) -> int:
        return len((self.runtime / "starts").read_text().split())

    @staticmethod
    def wait_for(path: Path, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.02)

    def tree(self) -> dict[str, tuple[int, int]]:
        """Every path below the sandbox with its size and mtime."""
        return {
            str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in [self.root, *self.root.rglob("*")]
        }


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = Sandbox(tmp_path)
    yield box
    starts = box.runtime / "starts"
    for pid in starts.read_text().split() if starts.exists() else []:
        try:
            os.kill(int(pid), 9)
        except ProcessLookupError:
            continue


@pytest.fixture(scope="session")
def make_sandbox() -> type[Sandbox]:
    """For tests that share one; no engine may be started in it."""
    return Sandbox


@pytest.fixture
def pulled(sandbox: Sandbox) -> None:
    """The default model is there."""
    sandbox.model()
