"""Records that cannot be read, or hold what nobody expected, stand in no other's way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ftagent.session.links import link
from tests.ftagent.sessions import PI, record

pytestmark = pytest.mark.usefixtures("pulled")


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
