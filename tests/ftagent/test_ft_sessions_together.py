"""Two that deal with one session at the same time, and names that two projects have."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ftagent.sessions import PI, listed, record

pytestmark = pytest.mark.usefixtures("pulled")


def other_project(sandbox: Any, name: str) -> Path:
    folder: Path = sandbox.root / name
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


def test_a_name_of_two_other_projects_is_neither_of_them(sandbox: Any) -> None:
    folders = [other_project(sandbox, name) for name in ("shop", "bank")]
    ids = []
    for number, folder in enumerate(folders):
        made = record(sandbox, number, name="claude", project={"root": str(folder), "cwd": str(folder)})
        ids.append(made.name)
    for command in (["rm", "claude", "--yes"], ["show", "claude"], ["rename", "claude", "x"], ["resume", "claude"]):
        done = sandbox.run("sessions", *command)
        assert done.returncode == 2, (command, done.stderr)
        assert all(id_ in done.stderr for id_ in ids) and str(folders[0]) in done.stderr
    done = sandbox.run("sessions", "rm", "claude", "--yes", cwd=folders[1])
    assert done.returncode == 0
    assert [session["id"] for session in listed(sandbox, "-a")] == [ids[0]]
    assert sandbox.run("sessions", "path", "claude").stdout.strip().endswith(ids[0])


def test_an_id_is_stronger_than_a_name(sandbox: Any) -> None:
    first = record(sandbox, 1)
    record(sandbox, 2, name=first.name, created="2026-02-01T00:00:00Z")
    assert sandbox.run("sessions", "path", first.name).stdout.strip() == str(first)


def test_a_name_given_while_the_agent_runs_stays(sandbox: Any) -> None:
    sandbox.agent(f"{PI}\ntouch ready; while [ ! -e stop ]; do sleep 0.05; done")
    process = sandbox.start("launch", "pi", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sandbox.wait_for(sandbox.project / "ready")
    assert sandbox.run("sessions", "rename", "pi", "the-bug").returncode == 0
    assert sandbox.run("sessions", "rm", "the-bug", "--yes").returncode == 4
    (sandbox.project / "stop").touch()
    process.communicate(timeout=300)
    (session,) = listed(sandbox)
    assert (session["name"], session["status"], session["runs"][0]["exit"]) == ("the-bug", "ended", 0)
    assert "the-bug" in sandbox.run("ls").stdout


def test_what_is_about_to_go_on_is_not_removed(sandbox: Any) -> None:
    """Another ft has the session's lock and has not yet said more."""
    folder = record(sandbox, 1)
    leases = sandbox.runtime / "leases"
    leases.mkdir(parents=True)
    with (leases / f"{folder.name}.json").open("w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        done = sandbox.run("sessions", "rm", "n1", "--yes")
        assert done.returncode == 4 and folder.exists(), done.stderr
    assert sandbox.run("sessions", "rm", "n1", "--yes").returncode == 0
    assert not folder.exists() and list(leases.iterdir()) == []


def test_the_token_is_closed_before_anybody_else_can_go_on_with_the_session(sandbox: Any) -> None:
    """The other way round the one that goes on would lose its own, new token."""
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    runs = [sandbox.start("resume", "--last", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)]
    codes = [run.wait(300) for run in runs]
    said = [run.communicate()[1] for run in runs]
    assert set(codes) <= {0, 3, 4} and 0 in codes, said  # one after the other, refused, or told that it is attached
    (session,) = listed(sandbox)
    ended = [run for run in session["runs"] if run["end"] is not None]
    assert len(ended) == len(session["runs"]) == 1 + codes.count(0), json.dumps(session["runs"])
