"""Where a session runs: worktrees, tmux; and when the engine ends with it."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.ftagent.sessions import PI, listed

pytestmark = pytest.mark.usefixtures("pulled")


def test_a_worktree_is_made_kept_and_made_again(sandbox: Any) -> None:
    shutil.rmtree(sandbox.project / ".git")
    git = ["git", "-C", str(sandbox.project), "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *command], check=True)
    sandbox.agent(PI)
    dry = sandbox.run("launch", "pi", "--worktree", "fix", "--dry-run", fake=True)
    place = sandbox.root / "project.worktrees" / "fix"
    assert dry.returncode == 0 and not place.exists()
    done = sandbox.run("launch", "pi", "--worktree", "fix", fake=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == str(place), done.stderr
    (session,) = listed(sandbox)
    assert session["project"]["worktree"] == {"path": str(place), "branch": "ft/fix", "by": "ft"}
    assert [s["id"] for s in listed(sandbox, cwd=place)] == [session["id"]]
    assert sandbox.run("launch", "pi", "--worktree", "fix", fake=True).returncode == 6
    shutil.rmtree(place)
    gone = sandbox.run("resume", "pi", fake=True)
    assert gone.returncode == 4 and "--worktree" in gone.stderr and not place.exists()
    again = sandbox.run("resume", "pi", "--worktree", fake=True)
    assert again.returncode == 0 and again.stdout.splitlines()[-1] == str(place), again.stderr


def test_without_tmux_nothing_is_detached(sandbox: Any) -> None:
    sandbox.agent("touch started")
    done = sandbox.run("launch", "pi", "--detach", fake=True, env={"PATH": str(sandbox.bin)})
    assert done.returncode == 6 and "tmux" in done.stderr
    assert not (sandbox.project / "started").exists()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_detached_in_tmux(sandbox: Any) -> None:
    sandbox.agent("env > seen; touch started; exec sleep 60")
    sockets = sandbox.root / "t"
    sockets.mkdir(mode=0o700)
    env = {"TMUX_TMPDIR": str(sockets), "FT_PROBE": "x"}
    done = sandbox.run("launch", "pi", "--detach", "-n", "far", fake=True, env=env)
    try:
        assert done.returncode == 0, done.stderr
        sandbox.wait_for(sandbox.project / "started")
        (session,) = listed(sandbox)
        assert (session["name"], session["status"]) == ("far", "detached")
        assert session["runs"][0]["tmux"] == f"ft-{session['id']}"
        assert "FT_DETACHED_SESSION" not in (sandbox.project / "seen").read_text()
        named = subprocess.run(["tmux", "ls", "-F", "#S"], env={**sandbox.env, **env}, capture_output=True, text=True)
        assert named.stdout.split() == [f"ft-{session['id']}"]
        assert sandbox.run("sessions", "stop", "far", env=env).returncode == 0
        assert not list(sandbox.runtime.glob("detach-*"))
    finally:
        subprocess.run(["tmux", "kill-server"], env={**sandbox.env, **env}, capture_output=True)


def test_the_engine_can_end_with_the_last_session(sandbox: Any) -> None:
    sandbox.agent("exit 0")
    assert sandbox.run("launch", "pi", "--stop-engine", "exit", fake=True).returncode == 0
    assert not (sandbox.runtime / "engine.json").exists() or sandbox.run("engine", "status").returncode == 3


def test_only_an_engine_that_a_launch_started_ends_when_it_is_idle(sandbox: Any) -> None:
    sandbox.agent("exit 0")

    def left() -> int | None:
        value: int | None = json.loads(sandbox.run("engine", "status", "--json").stdout)["stops_in_s"]
        return value

    assert sandbox.run("launch", "pi", fake=True, env={"FT_IDLE_STOP": "1200"}).returncode == 0
    assert left() == 1200 and "ends without use in 20 min" in sandbox.run("status").stdout
    assert sandbox.run("launch", "pi", "--new", fake=True).returncode == 0
    assert left() == 1200
    assert sandbox.run("launch", "pi", "--new", "--stop-engine", "idle", fake=True).returncode == 0
    assert left() == 600
    assert sandbox.run("launch", "pi", "--new", "--stop-engine", "never", fake=True).returncode == 0
    assert left() is None
    for first in (["engine", "start"], ["launch", "pi", "--new", "--stop-engine", "never"]):
        assert sandbox.run("engine", "stop", fake=True).returncode == 0
        assert sandbox.run(*first, fake=True).returncode == 0
        asked = sandbox.run("launch", "pi", "--new", fake=True, env={"FT_STOP_ENGINE": "idle"})
        assert asked.returncode == 0 and "ft engine stop" in asked.stderr
        assert left() is None


def test_the_receipt_gives_the_price_somewhere_else(sandbox: Any) -> None:
    sandbox.agent("exit 0")
    env = {"FT_PRICE_INPUT": "3000000", "FT_PRICE_CACHED": "1000000", "FT_PRICE_OUTPUT": "2000000"}
    done = sandbox.run("launch", "pi", fake=True, env=env)
    assert "at your reference price: 380.00" in done.stderr  # 80 new at 3, 120 cached at 1, 10 out at 2
    (session,) = listed(sandbox)
    assert session["stats"]["price"] == 380.0 and session["stats"]["energy_j"] is None
