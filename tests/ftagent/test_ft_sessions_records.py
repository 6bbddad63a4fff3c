"""Records of sessions: listed, pruned, removed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.ftagent.sessions import PI, listed, record

pytestmark = pytest.mark.usefixtures("pulled")


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
    for file in context.paths.sessions.glob("s-*/session.json"):
        json.loads(file.read_text())
    bare_s, before = time.process_time() - before, time.process_time()
    assert list_sessions(args, context) == 0
    # Three times what a person may wait, on a machine that reads them in 25 ms; on a slower one as much more.
    assert time.process_time() - before < 0.6 * max(1.0, bare_s / 0.025)
    assert len(capsys.readouterr().out.splitlines()) == 1001


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


def test_a_record_is_read_once_and_again_when_it_is_another(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch looks for what can go on, then for a free name, and once more when the name is its own."""
    from ftagent.paths import find_paths
    from ftagent.session import records
    from ftagent.session.names import reserved_name

    folders, paths = [record(sandbox, number) for number in range(5)], find_paths(sandbox.env)
    reads: list[Path] = []
    real = records.read_json
    monkeypatch.setattr(records, "read_json", lambda path: reads.append(path) or real(path))
    records.all_sessions(paths)
    with reserved_name("pi", None, sandbox.project, paths) as name:
        assert name == "pi"
    assert sorted(reads) == sorted(folder / "session.json" for folder in folders)
    renamed = records.read_record(folders[2])
    assert renamed is not None
    records.save(folders[2], {**renamed, "name": "pi"})
    with reserved_name("pi", None, sandbox.project, paths) as name:
        assert name == "pi-2"
    assert len(reads) == 6
