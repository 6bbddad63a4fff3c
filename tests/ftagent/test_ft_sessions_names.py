"""Names of sessions: what may be one, and that no two of a project have the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ftagent.sessions import PI, listed, record

pytestmark = pytest.mark.usefixtures("pulled")


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


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31mb", "a\nb", "a/b", "-a", "a" * 65, "a\u202eb"], ids=repr)
def test_a_name_that_cannot_be_typed_or_printed_is_refused(sandbox: Any, name: str) -> None:
    record(sandbox, 1)
    before = sandbox.tree()
    for command in (["launch", "run", f"--name={name}", "--", "true"], ["sessions", "rename", "n1", "--", name]):
        done = sandbox.run(*command, fake=True)
        assert done.returncode == 2, (command, done.stderr)
        assert "\x1b" not in done.stderr and "\u202e" not in done.stderr
    assert sandbox.tree() == before


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
