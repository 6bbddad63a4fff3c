"""`ft agents install` by the channels where the makers publish: the real registries, into a home of its own. Slow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.agents, pytest.mark.timeout(900)]
INSTALL = Path(__file__).parents[1] / "agents" / "install.py"


@pytest.fixture
def networked(sandbox: Any) -> Any:
    """With what this machine needs to reach a registry, and the node that the agents want."""
    wanted = ("CERT", "PROXY", "CA_BUNDLE", "PIP_", "NPM_CONFIG_REGISTRY")
    sandbox.env |= {name: value for name, value in os.environ.items() if any(word in name.upper() for word in wanted)}
    return sandbox


@pytest.mark.parametrize("agent", ["hermes", "pi"])
def test_a_published_agent_lands_in_our_own_folder_and_starts(networked: Any, agent: str) -> None:
    """The commands that were shown are those that ran; nothing is written in the user's home; a second time nothing runs."""
    sandbox = networked
    if agent == "pi":
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        told = subprocess.run([sys.executable, str(INSTALL), "node24"], capture_output=True, text=True, check=True)
        sandbox.env["PATH"] = f"{Path(json.loads(told.stdout)['executable']).parent}:{sandbox.env['PATH']}"
    dry = sandbox.run("agents", "install", agent, "--dry-run")
    assert dry.returncode == 0 and not (sandbox.ft_home / "data").exists()
    done = sandbox.run("agents", "install", agent, "--yes", timeout=850)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(dry.stdout)
    row = next(r for r in json.loads(sandbox.run("agents", "ls", "--json").stdout)["agents"] if r["name"] == agent)
    assert row["ours"] and row["version"] == row["known_good"] and Path(row["path"]).is_relative_to(sandbox.ft_home)
    assert [path.name for path in sandbox.home.iterdir()] == [], "something was left in the user's home"
    started = subprocess.run([row["path"], "--version"], env=sandbox.env, capture_output=True, text=True, timeout=120)
    assert row["version"] in started.stdout + started.stderr, started
    again = sandbox.run("agents", "install", agent, "--yes")
    assert again.returncode == 0 and "is there already" in again.stderr
    items = json.loads(sandbox.run("uninstall", "--dry-run", "--json").stdout)["items"]
    assert any(Path(row["path"]).is_relative_to(item["path"]) for item in items)
    assert sandbox.run("uninstall", "--yes", timeout=400).returncode == 0 and not sandbox.ft_home.exists()


def test_an_installation_that_ends_halfway_leaves_the_one_before(networked: Any) -> None:
    """A version that the registry does not have: its message is shown, what is there stays, nothing is left behind."""
    sandbox = networked
    done = sandbox.run("agents", "install", "hermes", "--version", "0.0.0.1", "--yes", timeout=300)
    assert done.returncode == 1
    assert "0.0.0.1" in done.stdout + done.stderr
    assert not list((sandbox.ft_home / "data" / "agents" / "hermes").iterdir())
