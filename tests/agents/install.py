"""Installs one published agent, pinned, into the tests' own cache, and prints how to start it.

    python install.py NAME        -> {"executable": "/…/claude", "path": ["/…/node/bin"]} as one line of JSON

The cache is outside the repository: nothing of a proprietary agent is ever part of it. Needs npm, or Python for an agent
that is published as a Python package; installs once, under a lock, and is silent when everything is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Agent:
    package: str  # npm name@version, PyPI name==version
    executable: str  # below node_modules, or the program of the environment of its own
    needs: str = ""  # another entry whose folder of executables must be on PATH


# The platform's own package where there is one: the general one may pick an older version by the node that installs it.
AGENTS = {
    "node24": Agent("node@24", "node/bin/node"),
    "claude": Agent("@anthropic-ai/claude-code-linux-x64@2.1.332", "@anthropic-ai/claude-code-linux-x64/claude"),
    "codex": Agent("@openai/codex@0.171.0", "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
    "opencode": Agent("opencode-linux-x64@1.18.33", "opencode-linux-x64/bin/opencode"),
    "pi": Agent("@mariozechner/pi-coding-agent@0.73.1", ".bin/pi", needs="node24"),
    "openclaw": Agent("openclaw@2026.9.6", ".bin/openclaw", needs="node24"),
    "qwen": Agent("@qwen-code/qwen-code@0.24.4", ".bin/qwen", needs="node24"),
    "hermes": Agent("hermes-agent==0.19.0", "hermes"),
    "aider": Agent("aider-chat==0.86.2", "aider"),
    "mini_swe_agent": Agent("mini-swe-agent==2.4.6", "mini"),
}
TIMEOUT_S = 600


def main() -> int:
    name = sys.argv[1]
    executable = install(name)
    needs = AGENTS[name].needs
    path = [str(install(needs).parent)] if needs else []
    print(json.dumps({"executable": str(executable), "path": path}))
    return 0


def install(name: str) -> Path:
    """The executable. Exits with one sentence when it cannot be had."""
    agent = AGENTS[name]
    folder = cache() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = "==" in agent.package
        executable = folder / ("venv/bin" if python else "node_modules") / agent.executable
        if not (_is_in_venv(folder, agent) if python else _is_there(folder, agent, executable)):
            (_pip_install if python else _npm_install)(folder, agent)
        if not executable.exists():
            sys.exit(f"{agent.package} was installed but has no {agent.executable}")
    return executable


def cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("FT_TEST_AGENTS") or base / "ft" / "test-agents")


def _is_there(folder: Path, agent: Agent, executable: Path) -> bool:
    package, _, wanted = agent.package.rpartition("@")
    try:
        installed = json.loads((folder / "node_modules" / package / "package.json").read_text())["version"]
    except (OSError, ValueError, KeyError):
        return False
    return executable.exists() and (installed == wanted or installed.startswith(f"{wanted}."))


def _is_in_venv(folder: Path, agent: Agent) -> bool:
    """What was installed last, written down when it was complete."""
    note = folder / "installed"
    return note.exists() and note.read_text() == agent.package and (folder / "venv/bin" / agent.executable).exists()


def _pip_install(folder: Path, agent: Agent) -> None:
    venv = folder / "venv"
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [str(venv / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", agent.package],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            sys.exit(f"pip could not install {agent.package}: {done.stderr.strip()[-500:]}")
    (folder / "installed").write_text(agent.package)


def _npm_install(folder: Path, agent: Agent) -> None:
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed")
    env = dict(os.environ)
    if agent.needs:  # the engine check of a package wants the node that will run it
        env["PATH"] = f"{install(agent.needs).parent}{os.pathsep}{env['PATH']}"
    command = [npm, "install", "--no-audit", "--no-fund", "--save-exact", "--loglevel=error", agent.package]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        sys.exit(f"npm could not install {agent.package}: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    sys.exit(main())
