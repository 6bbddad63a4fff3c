"""Sessions outlive their agents: going on, forks, renamed folders, crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftagent.session.links import link
from tests.ftagent.sessions import PI, listed, record

pytestmark = pytest.mark.usefixtures("pulled")


def test_the_newest_session_goes_on_under_its_own_id(sandbox: Any) -> None:
    sandbox.agent(PI)
    nothing = sandbox.run("resume", fake=True)
    assert nothing.returncode == 3 and "ft launch" in nothing.stderr
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (first,) = listed(sandbox)
    (one,) = first["harness"]
    assert (one["source"], one["confidence"], first["status"]) == ("scanned", "likely", "ended")
    again = sandbox.run("resume", fake=True)
    assert again.returncode == 0, again.stderr
    assert f"--session {one['id']}" in again.stdout
    assert "900 of 1,000 tokens are warm (from disk)" in again.stderr
    (record,) = listed(sandbox)
    assert (record["id"], record["created"], len(record["runs"])) == (first["id"], first["created"], 2)
    assert record["stats"]["requests"] == 4 and record["runs"][1]["stats"]["requests"] == 2
    registered = json.loads((sandbox.runtime / "registered.json").read_text())
    assert registered["id"] == first["id"]
    hinted = sandbox.run("launch", "pi", "--new", fake=True)
    assert "to go on" not in hinted.stderr and hinted.returncode == 0
    assert "to go on with pi" in sandbox.run("launch", "pi", fake=True).stderr
    several = sandbox.run("resume", fake=True)
    assert several.returncode == 2 and "pi-2" in several.stderr
    assert sandbox.run("resume", "--last", fake=True).returncode == 0
    assert sandbox.run("launch", "pi", "-c", fake=True).returncode == 0
    assert sandbox.run("launch", "--resume", "nobody", fake=True).returncode == 3
    assert sandbox.run("launch", "pi", "-n", "pi", fake=True).returncode == 6


def test_a_fork_leaves_the_session_as_it_is(sandbox: Any) -> None:
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (first,) = listed(sandbox)
    before = (Path(first["path"]) / "session.json").read_bytes()
    forked = sandbox.run("launch", "--fork", "pi", fake=True)
    assert forked.returncode == 0, forked.stderr
    assert f"--fork {first['harness'][0]['id']}" in forked.stdout
    assert (Path(first["path"]) / "session.json").read_bytes() == before
    other = next(session for session in listed(sandbox) if session["id"] != first["id"])
    assert (other["parent"], other["name"]) == (first["id"], "pi-2")


def test_a_renamed_folder_keeps_its_sessions(sandbox: Any) -> None:
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (first,) = listed(sandbox)
    moved = sandbox.project.rename(sandbox.root / "renamed")
    assert [session["id"] for session in listed(sandbox, cwd=moved)] == [first["id"]]
    again = sandbox.run("resume", fake=True, cwd=moved)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == [f"--fork {first['harness'][0]['file']}", str(moved)]
    assert "was" in again.stderr and str(sandbox.project) in again.stderr
    elsewhere = sandbox.root / "elsewhere"
    elsewhere.mkdir()
    assert listed(sandbox, cwd=elsewhere) == []


def test_a_renamed_folder_is_told_from_another_that_has_its_name_now(sandbox: Any) -> None:
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (session,) = listed(sandbox)
    moved = sandbox.project.rename(sandbox.root / "the-old-one")
    sandbox.project.mkdir()
    (sandbox.project / ".git").mkdir()
    assert [one["id"] for one in listed(sandbox, cwd=moved)] == [session["id"]]
    done = sandbox.run("resume", "--last", fake=True, cwd=moved)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == str(moved), done.stderr
    assert list(sandbox.project.iterdir()) == [sandbox.project / ".git"]


def test_what_cannot_go_on_says_why(sandbox: Any) -> None:
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (first,) = listed(sandbox)
    Path(first["harness"][0]["file"]).unlink()
    assert [session["status"] for session in listed(sandbox)] == ["lost"]
    lost = sandbox.run("resume", fake=True)
    assert lost.returncode == 3 and "is gone" in lost.stderr
    sandbox.agent("exit 0")
    assert sandbox.run("launch", "pi", "-n", "silent", fake=True).returncode == 0
    unknown = sandbox.run("resume", "silent", fake=True)
    assert unknown.returncode == 3 and "is not known" in unknown.stderr
    (Path(first["path"]) / "session.json").write_text("{")
    assert sandbox.run("resume", first["id"], fake=True).returncode == 4


def test_an_attached_session_is_not_shared_and_can_be_stopped(sandbox: Any) -> None:
    sandbox.agent("touch started; exec sleep 60")
    process = sandbox.start("launch", "pi")
    sandbox.wait_for(sandbox.project / "started")
    assert [session["status"] for session in listed(sandbox)] == ["running"]
    refused = sandbox.run("resume", "pi", fake=True)
    assert refused.returncode == 4 and f"process {process.pid}" in refused.stderr
    assert sandbox.run("sessions", "rm", "pi", "--yes").returncode == 4
    assert sandbox.run("sessions", "attach", "pi").returncode == 3
    assert sandbox.run("sessions", "stop", "pi", "--dry-run").returncode == 0 and process.poll() is None
    assert sandbox.run("sessions", "stop", "pi").returncode == 0
    assert process.wait(20) == 143
    assert sandbox.run("sessions", "stop", "pi").returncode == 3
    assert [session["status"] for session in listed(sandbox)] == ["ended"]


def test_a_killed_launch_is_crashed_and_goes_on_after_a_reboot(sandbox: Any) -> None:
    sandbox.agent(PI + '[ -n "$given" ] || { touch started; exec sleep 60; }')
    process = sandbox.start("launch", "pi", start_new_session=True)
    sandbox.wait_for(sandbox.project / "started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    assert sandbox.run("engine", "stop", fake=True).returncode == 0
    shutil.rmtree(sandbox.runtime)
    (crashed,) = listed(sandbox)
    assert crashed["status"] == "crashed"
    again = sandbox.run("resume", fake=True)
    assert again.returncode == 0, again.stderr
    assert "--session p-" in again.stdout
    assert [session["status"] for session in listed(sandbox)] == ["ended"]


def test_one_launch_has_the_lease_however_many_look_or_want_it(sandbox: Any) -> None:
    """Looking never keeps a launch from its lease, two never have it at once, and a dead one's is free."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom ftagent.errors import Refused\n"
        "from ftagent.paths import find_paths\nfrom ftagent.session import leases\n"
        "leases._LEASE_WAIT_S = 20.0\npaths, id_ = find_paths(os.environ), 's-aaaaaaaaaa'\n"
        "if sys.argv[1] == 'look':\n"
        "    end = time.monotonic() + 2\n"
        "    while time.monotonic() < end: leases.lease_is_held(paths, id_)\n"
        "    sys.exit(0)\n"
        "for _ in range(10):\n"
        "    lease = leases.take_lease(paths, id_)\n"
        "    alone = Path('alone'); os.mkdir(alone)\n"
        "    assert leases.lease_pid(paths, id_) == os.getpid()\n"
        "    time.sleep(0.005); os.rmdir(alone)\n"
        "    leases.drop_lease(paths, id_, lease)\n"
    )
    command = [sys.executable, "-P", "-c", code]
    kinds = ["look"] * 2 + ["take"] * 3
    running = [
        subprocess.Popen([*command, kind], env=sandbox.env, cwd=sandbox.project, stderr=subprocess.PIPE, text=True)
        for kind in kinds
    ]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert listed(sandbox) == []


def test_of_two_that_resume_at_once_one_is_refused_and_the_other_goes_on(sandbox: Any) -> None:
    sandbox.agent(PI + '[ -z "$given" ] || sleep 3')
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    both = [sandbox.start("resume", "pi") for _ in range(2)]
    ends = sorted((process.communicate(timeout=60), process.returncode) for process in both)
    assert sorted(code for _, code in ends) == [0, 4], ends
    (session,) = listed(sandbox)
    assert [run["exit"] for run in session["runs"]] == [0, 0]


def test_only_what_can_go_on_is_offered(sandbox: Any) -> None:
    record(sandbox, 1, runs=[{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z", "exit": 126}])
    gone = {**link("p-1", "observed", "2026-01-01T00:00:00Z"), "file": str(sandbox.root / "gone")}
    record(sandbox, 2, harness=[gone])
    record(sandbox, 3, agent={"name": "run"}, harness=[link("p-2", "observed", "2026-01-01T00:00:00Z")])
    sandbox.agent("exit 0")
    for command in (["pi"], ["run", "--", "true"]):
        done = sandbox.run("launch", *command, fake=True)
        assert done.returncode == 0 and "to go on" not in done.stderr, done.stderr
    record(sandbox, 4, harness=[link("p-3", "observed", "2026-01-01T00:00:00Z")])
    assert "to go on with n4: ft resume n4" in sandbox.run("launch", "pi", fake=True).stderr
