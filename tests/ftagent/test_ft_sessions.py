"""Sessions outlive their agents: listing, going on, forks, renamed folders, worktrees, tmux, and cleaning up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ftagent.session.links import continued, link, merge, scan
from ftagent.session.records import folder_identity

pytestmark = pytest.mark.usefixtures("pulled")
# What pi does of a conversation: a file with its id in the folder of sessions, or the one that --session names.
PI = """
while [ $# -gt 0 ]; do case "$1" in --session-dir) dir=$2;; --session|--fork) given="$1 $2";; esac; shift; done
mkdir -p "$dir"
[ -n "$given" ] || printf '{"type":"session","id":"%s","timestamp":"%s","cwd":"%s"}\\n' "p-$$" \\
  "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)" "$PWD" > "$dir/x_p-$$.jsonl"
echo "$given"; pwd
"""


def listed(sandbox: Any, *flags: str, **options: Any) -> list[dict[str, Any]]:
    done = sandbox.run("ls", "--json", *flags, **options)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["sessions"]
    return found


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


def test_names_events_and_removal(sandbox: Any) -> None:
    sandbox.agent(PI)
    for _ in range(2):
        assert sandbox.run("launch", "pi", "--new", fake=True).returncode == 0
    assert sandbox.run("sessions", "rename", "pi", "pi-2").returncode == 6
    assert sandbox.run("sessions", "rename", "pi", "cart").returncode == 0
    shown = sandbox.run("sessions", "show", "cart")
    assert "scanned (likely)" in shown.stdout
    path = Path(sandbox.run("sessions", "path", "cart").stdout.strip())
    events = [
        json.loads(line)["event"] for line in sandbox.run("sessions", "logs", "cart", "--json").stdout.splitlines()
    ]
    assert events == ["created", "conversation", "ended", "renamed"]
    transcript = next(s for s in listed(sandbox) if s["name"] == "cart")["harness"][0]["file"]
    assert sandbox.run("sessions", "rm", "cart").returncode == 2 and path.exists()
    assert sandbox.run("sessions", "rm", "cart", "--dry-run").returncode == 0 and path.exists()
    assert sandbox.run("sessions", "rm", "cart", "--yes").returncode == 0 and not path.exists()
    assert Path(transcript).exists()


def record(sandbox: Any, number: int, **fields: Any) -> Path:
    digits = "".join("abcdefghij"[int(digit)] for digit in f"{number:010}")
    folder = sandbox.ft_home / "state" / "sessions" / f"s-{digits}"
    folder.mkdir(parents=True)
    written = {
        "schema": "ft.session/1",
        "id": folder.name,
        "name": f"n{number}",
        "created": "2026-01-01T00:00:00Z",
        "project": {"root": str(sandbox.project), "cwd": str(sandbox.project)},
        "agent": {"name": "pi"},
        "harness": [],
        "runs": [{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z", "exit": 0}],
    }
    (folder / "session.json").write_text(json.dumps({**written, **fields}))
    return folder


def test_old_records_are_pruned_only_when_told(sandbox: Any) -> None:
    old, pinned = record(sandbox, 1), record(sandbox, 2, pinned=True)
    recent = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    new = record(sandbox, 3, runs=[{"start": recent, "end": recent, "exit": 0}])
    told = json.loads(sandbox.run("sessions", "prune", "--json").stdout)
    assert (told["sessions"], told["removed"]) == ([old.name], False) and told["bytes"] > 0 and old.exists()
    assert sandbox.run("sessions", "prune", "--yes").returncode == 0
    assert [folder.exists() for folder in (old, pinned, new)] == [False, True, True]


def test_one_corrupt_record_among_fifty_hides_none(sandbox: Any) -> None:
    folders = [record(sandbox, number) for number in range(50)]
    (folders[20] / "session.json").write_bytes(b'{"schema": "ft.sess')
    found = {session["id"]: session["status"] for session in listed(sandbox)}
    assert len(found) == 50 and found[folders[20].name] == "unreadable"
    assert sorted(set(found.values())) == ["ended", "unreadable"]
    filtered = listed(sandbox, "--filter", "status=unreadable")
    assert [session["id"] for session in filtered] == [folders[20].name]
    assert sandbox.run("ls", "--filter", "status=asleep").returncode == 2
    assert len(sandbox.run("ls", "-q", "-a").stdout.split()) == 50
    own = sandbox.run("ls", "-q")
    assert len(own.stdout.split()) == 49 and folders[20].name not in own.stdout
    assert "1 record cannot be read: ft ls -a" in own.stderr
    status = sandbox.run("status").stdout
    assert "0 running, 49 ended or prepared, 1 unreadable: ft ls -a" in status
    assert json.loads(sandbox.run("status", "--json").stdout)["sessions"] == []


def test_a_thousand_sessions_are_listed_in_little_time(sandbox: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from ftagent.context import Context
    from ftagent.paths import find_paths
    from ftagent.session.listing import list_sessions

    for number in range(1000):
        record(sandbox, number)
    context = Context(find_paths(sandbox.env), sandbox.env, sandbox.project, False, "never", True)
    import argparse

    args = argparse.Namespace(all=True, quiet=False, filter=[], no_trunc=False, json=False)
    before = time.process_time()
    assert list_sessions(args, context) == 0
    assert time.process_time() - before < 0.6  # three times what a person may wait
    assert len(capsys.readouterr().out.splitlines()) == 1001


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


def test_the_strongest_source_of_an_id_stays() -> None:
    first = link("a", "scanned", "2026-01-01T00:00:00Z")
    links = merge(
        [first], [link("a", "assigned", "2026-01-01T00:00:01Z"), link("b", "observed", "2026-01-01T00:00:05Z")]
    )
    assert [(one["id"], one["source"], one["ended_by"]) for one in links] == [
        ("a", "assigned", "clear"),
        ("b", "observed", None),
    ]
    assert continued({"name": "n", "harness": links}) == "b"
    child = link("c", "observed", "2026-01-01T00:00:09Z", parent="b")
    assert continued({"name": "n", "harness": merge(links, [child])}) == "b"


def test_only_the_launch_window_is_scanned(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    folder = tmp_path / ".codex" / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)

    def rollout(name: str, minute: int, cwd: str = "/p", provider: str = "ft") -> None:
        meta = {"id": name, "cwd": cwd, "timestamp": f"2026-01-01T12:{minute:02}:00.000Z", "model_provider": provider}
        (folder / f"rollout-x-{name}.jsonl").write_text(json.dumps({"type": "session_meta", "payload": meta}) + "\n")

    for name, minute, cwd, provider in (
        ("in", 5, "/p", "ft"),
        ("late", 30, "/p", "ft"),
        ("other", 5, "/q", "ft"),
        ("cloud", 5, "/p", "openai"),
    ):
        rollout(name, minute, cwd, provider)
    (folder / "rollout-x-broken.jsonl").write_bytes(b"\xff\xfe{")
    found = scan("codex", {}, tmp_path, Path("/p"), start, start + timedelta(minutes=10))
    assert [(one["id"], one["confidence"]) for one in found] == [("in", "likely")]
    rollout("twin", 6)
    found = scan("codex", {}, tmp_path, Path("/p"), start, start + timedelta(minutes=10))
    assert {one["confidence"] for one in found} == {"ambiguous"}
    with pytest.raises(Exception, match="any of these"):
        continued({"name": "n", "harness": found})
    assert continued({"name": "n", "harness": found}, "tw") == "twin"


def test_two_at_once_in_one_folder_may_each_have_held_either_conversation(sandbox: Any) -> None:
    """The one that ends first cannot know; that it may be either's hides it from none of them, and the user's word decides."""
    sandbox.agent(PI + '[ -n "$given" ] || { touch started-$$; while [ ! -f go ]; do sleep 0.05; done; }')
    both = [sandbox.start("launch", "pi", "-n", name) for name in ("one", "two")]
    deadline = time.monotonic() + 30
    while len(list(sandbox.project.glob("started-*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sandbox.run("sessions", "stop", "one").returncode == 0
    (sandbox.project / "go").touch()
    assert sorted(process.wait(30) for process in both) == [0, 143]
    for name in ("one", "two"):
        links = next(session for session in listed(sandbox) if session["name"] == name)["harness"]
        assert [one["confidence"] for one in links] == ["ambiguous"] * 2, name
        refused = sandbox.run("resume", name, fake=True)
        assert refused.returncode == 2 and "--conversation" in refused.stderr
    id_ = links[0]["id"]
    assert sandbox.run("resume", "two", "--conversation", id_, fake=True).returncode == 0


def test_a_folder_is_known_by_what_a_rename_keeps(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    before = folder_identity(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert folder_identity(tmp_path / "b") == before != folder_identity(tmp_path)
    assert folder_identity(tmp_path / "a") is None


def test_one_launch_has_the_lease_however_many_look_or_want_it(sandbox: Any) -> None:
    """Looking never keeps a launch from its lease, two never have it at once, and a dead one's is free."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom ftagent.errors import Refused\n"
        "from ftagent.paths import find_paths\nfrom ftagent.session import records\n"
        "records._LEASE_WAIT_S = 20.0\npaths, id_ = find_paths(os.environ), 's-aaaaaaaaaa'\n"
        "if sys.argv[1] == 'look':\n"
        "    end = time.monotonic() + 2\n"
        "    while time.monotonic() < end: records.lease_is_held(paths, id_)\n"
        "    sys.exit(0)\n"
        "for _ in range(10):\n"
        "    lease = records.take_lease(paths, id_)\n"
        "    alone = Path('alone'); os.mkdir(alone)\n"
        "    assert records.lease_pid(paths, id_) == os.getpid()\n"
        "    time.sleep(0.005); os.rmdir(alone)\n"
        "    records.drop_lease(paths, id_, lease)\n"
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


def test_removal_says_what_stays(sandbox: Any) -> None:
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    (session,) = listed(sandbox)
    (sandbox.ft_home / "data" / "checkpoints").mkdir(parents=True)
    done = sandbox.run("sessions", "rm", "pi", "--yes")
    assert done.returncode == 0
    assert "removed the record of pi" in done.stderr and session["harness"][0]["file"] in done.stderr
    (sandbox.ft_home / "data" / "checkpoints" / "heads-x.json").mkdir()
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    assert sandbox.run("sessions", "rm", "pi", "--yes").returncode == 0


ODD: dict[str, dict[str, Any]] = {
    "harness": {"harness": 5},
    "link": {"harness": [{"id": 7, "source": "observed"}]},
    "source": {"harness": [{"id": "p-1", "source": "dreamt"}]},
    "no source": {"harness": [{"id": "p-1"}]},
    "project": {"project": 7},
    "folders": {"project": {"root": 3, "cwd": None}},
    "worktree": {"project": {"root": "/", "cwd": "/", "worktree": {"by": "ft"}}},
    "runs": {"runs": "x"},
    "run": {"runs": [{"start": "yesterday", "end": None}]},
    "stats": {"stats": {"requests": [], "ttft_p50_s": "soon"}},
    "agent": {"agent": None},
    "name": {"name": ["a"]},
    "another schema": {"schema": "ft.session/2"},
}


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD)
def test_a_record_of_another_shape_is_unreadable(sandbox: Any, fields: dict[str, Any]) -> None:
    from ftagent.paths import find_paths
    from ftagent.session.records import all_sessions, conversations_but

    odd, good = record(sandbox, 1, **fields), record(sandbox, 2, harness=[link("p-9", "observed", "2026-01-01")])
    paths = find_paths(sandbox.env)
    assert {s.id: s.record is None for s in all_sessions(paths)} == {odd.name: True, good.name: False}
    assert conversations_but(paths, "s-other") == {"p-9"}


@pytest.mark.parametrize("text", ["[" * 100_000, "5", '{"schema": "ft.session/1"}', "\ufffe\x00"], ids=range(4))
def test_a_file_that_is_no_record_is_unreadable(sandbox: Any, text: str) -> None:
    from ftagent.paths import find_paths
    from ftagent.session.records import all_sessions

    folder = record(sandbox, 1)
    (folder / "session.json").write_text(text)
    assert [session.record for session in all_sessions(find_paths(sandbox.env))] == [None]


def test_an_odd_record_stands_in_nobodys_way(sandbox: Any) -> None:
    one, other = record(sandbox, 1, harness=5), record(sandbox, 2, project=7, runs="x")
    sandbox.agent(PI)
    assert sandbox.run("launch", "pi", fake=True).returncode == 0
    done = sandbox.run("resume", "pi", fake=True)
    assert done.returncode == 0, done.stderr
    for folder in (one, other):
        shown = sandbox.run("sessions", "show", folder.name)
        assert shown.returncode == 0 and "unreadable" in shown.stdout, shown.stderr
        assert sandbox.run("resume", folder.name, fake=True).returncode == 4
        assert sandbox.run("sessions", "rm", folder.name, "--yes").returncode == 0 and not folder.exists()


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31mb", "a\nb", "a/b", "-a", "a" * 65, "a\u202eb"], ids=repr)
def test_a_name_that_cannot_be_typed_or_printed_is_refused(sandbox: Any, name: str) -> None:
    record(sandbox, 1)
    before = sandbox.tree()
    for command in (["launch", "run", f"--name={name}", "--", "true"], ["sessions", "rename", "n1", "--", name]):
        done = sandbox.run(*command, fake=True)
        assert done.returncode == 2, (command, done.stderr)
        assert "\x1b" not in done.stderr and "\u202e" not in done.stderr
    assert sandbox.tree() == before


def test_what_stands_in_records_does_nothing_to_the_terminal(sandbox: Any) -> None:
    evil = "a\x1b]0;owned\x07b\u202e"
    folder = record(sandbox, 1, name=evil, agent={"name": evil}, model={"id": evil})
    (folder / "events.jsonl").write_text(json.dumps({"time": "t", "event": evil, "x": "\x9b31m"}) + "\n")
    for command in (["ls"], ["sessions", "show", folder.name], ["sessions", "logs", folder.name], ["status"]):
        done = sandbox.run(*command)
        said = done.stdout + done.stderr
        assert said and not any(c in said for c in "\x1b\x07\x9b\u202e"), command
    removed = sandbox.run("sessions", "rm", folder.name, "--yes")
    assert removed.returncode == 0 and "\x1b" not in removed.stderr and "\\x1b" in removed.stderr


def test_two_launches_at_once_have_two_names(sandbox: Any) -> None:
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    started = [sandbox.start("launch", "run", "-q", "--", "sleep", "0.2") for _ in range(4)]
    assert [process.wait(60) for process in started] == [0] * 4
    assert sorted(s["name"] for s in listed(sandbox)) == ["run", "run-2", "run-3", "run-4"]
    wanted = [sandbox.start("launch", "run", "-q", "-n", "aa", "--", "sleep", "0.2") for _ in range(3)]
    assert sorted(process.wait(60) for process in wanted) == [0, 6, 6]
    assert [s["name"] for s in listed(sandbox)].count("aa") == 1


def test_a_reserved_name_is_nobody_elses(sandbox: Any) -> None:
    from ftagent.errors import Conflict
    from ftagent.paths import find_paths
    from ftagent.session.names import reserved_name

    paths, root = find_paths(sandbox.env), sandbox.project
    with reserved_name("pi", None, root, paths) as one, reserved_name("pi", None, root, paths) as two:
        assert (one, two) == ("pi", "pi-2")
        with pytest.raises(Conflict), reserved_name("pi", "pi", root, paths):
            pass
        with reserved_name("pi", None, sandbox.root, paths) as elsewhere:
            assert elsewhere == "pi"
    with reserved_name("pi", "pi", root, paths) as again:
        assert again == "pi"


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
