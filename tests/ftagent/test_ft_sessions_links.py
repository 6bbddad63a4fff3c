"""Which conversations of an agent belong to a session."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ftagent.session.links import continued, link, merge, scan
from ftagent.session.records import folder_identity
from tests.ftagent.sessions import PI, listed

pytestmark = pytest.mark.usefixtures("pulled")


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
    elsewhere, state_dir = tmp_path / "nobody", tmp_path / "s-aaaaaaaaaa"
    state_dir.mkdir()
    (tmp_path / ".codex").rename(state_dir / "codex")  # that of a sealed launch
    found = scan("codex", {}, elsewhere, Path("/p"), start, start + timedelta(minutes=10), state_dir=state_dir)
    assert [one["id"] for one in found] == ["in"]
    (state_dir / "codex").rename(tmp_path / ".codex")
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
    deadline = time.monotonic() + 180
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
