"""Files of a launch that the agent changes, and what an earlier version of ft left in files of the user (cases 6 and 9)."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ftagent.files import integrate
from ftagent.files.restoring import plan_undo
from ftagent.launch import kept
from ftagent.paths import find_paths

pytestmark = pytest.mark.usefixtures("pulled")

THEIRS = '# mine\napproval_policy = "never"\n\n[profiles.own] # mine too\nmodel = "gpt-9"\n'
OURS = {
    ("profile",): "ft",
    ("profiles", "ft", "model_provider"): "ft",
    ("model_providers", "ft", "base_url"): "http://127.0.0.1:1919/v1",
    ("model_providers", "ft", "wire_api"): "chat",
}


def session_dir(sandbox: Any) -> Path:
    (folder,) = (sandbox.ft_home / "state" / "sessions").iterdir()
    return Path(folder)


def test_case_9_what_the_agent_makes_of_a_file_of_the_launch_stays(sandbox: Any) -> None:
    """At its end without the token, and before the next launch writes that file anew, as a copy."""
    sandbox.agent(
        """f="$OPENCLAW_CONFIG_PATH"; printf '\\n// mine\\n' >> "$f"; cat "$f" > seen; echo x > "${f%/*}/new" """,
        "openclaw",
    )
    done = sandbox.run("launch", "openclaw", "-n", "one", fake=True)
    assert done.returncode == 0, done.stderr
    config = session_dir(sandbox) / "openclaw" / "openclaw.json"
    seen = (sandbox.project / "seen").read_text()
    token = re.search(r"ft_sess_\w+", seen)
    assert token is not None and seen.endswith("\n// mine\n")
    assert config.read_text() == seen.replace(token[0], "ft_sess_ended")
    assert config.with_name("new").read_text() == "x\n"
    record = json.loads((session_dir(sandbox) / "session.json").read_text())
    record["harness"] = [{"id": "c-1", "source": "observed"}]
    (session_dir(sandbox) / "session.json").write_text(json.dumps(record))
    before = config.read_text()
    sandbox.agent('cat "$OPENCLAW_CONFIG_PATH"', "openclaw")
    again = sandbox.run("resume", "one", fake=True)
    assert again.returncode == 0, again.stderr
    assert "// mine" not in again.stdout and "ft_sess_" in again.stdout, "the launch has the file as planned"
    copy = config.with_name("openclaw.json.edited")
    assert copy.read_text() == before and str(copy) in again.stderr
    assert not config.exists(), "unchanged, with a token: gone"
    third = sandbox.run("resume", "one", fake=True)
    assert third.returncode == 0 and "edited" not in third.stderr
    assert [path.name for path in config.parent.glob("*.edited*")] == [copy.name]
    assert sandbox.run("engine", "stop", fake=True).returncode == 0


def test_every_edit_has_a_copy_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for number, name in enumerate(("a.json.edited", "a.json.edited-2", "a.json.edited-3")):
        file.write_text(f"edit {number} ft_sess_abc-1")
        copy = kept.save_edit(file, {str(file): kept.digest("written")})
        assert copy == tmp_path / name and copy.read_text() == f"edit {number} {kept.ENDED}"
    assert kept.save_edit(file, {str(file): kept.digest(file.read_text())}) is None
    assert kept.save_edit(file, {}) is None, "of a launch of which that is not known"
    assert kept.save_edit(tmp_path / "none", {str(tmp_path / "none"): "x"}) is None
    kept.put_away(tmp_path / "none", "x")


def test_case_6_what_an_earlier_version_wrote_is_taken_out_and_nothing_else(sandbox: Any) -> None:
    sandbox.agent('cat "$HOME/.codex/config.toml"', "codex")
    file = sandbox.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(THEIRS)
    paths = find_paths(sandbox.env)
    integrate.write(integrate.integrate("codex", file, OURS), paths)
    earlier = file.read_text()
    assert tomllib.loads(earlier)["profile"] == "ft"
    plan = json.loads(sandbox.run("launch", "codex", "--dry-run", "--json").stdout)
    assert [(entry["path"], entry["action"]) for entry in plan["files"]] == [(str(file), "edit")]
    assert not [warning for warning in plan["warnings"] if warning["code"].startswith("FT-W011")], plan["warnings"]
    assert "earlier version" in sandbox.run("launch", "codex", "--dry-run").stdout
    assert file.read_text() == earlier, "a dry run"
    file.write_text(earlier.replace('profile = "ft"', 'profile = "own"'))
    done = sandbox.run("launch", "codex", fake=True)
    assert done.returncode == 0 and str(file) in done.stderr, done.stderr
    left = tomllib.loads(done.stdout)
    assert left == tomllib.loads(THEIRS) | {"profile": "own"}, "what the user changed since is the user's"
    assert "# mine\n" in done.stdout and "# mine too\n" in done.stdout
    assert not [undo for undo in plan_undo(paths, "codex") if undo.plan.changes]
    after = file.read_text()
    again = sandbox.run("launch", "codex", fake=True)
    assert "earlier version" not in again.stderr and file.read_text() == after
    assert sandbox.run("engine", "stop", fake=True).returncode == 0


def test_what_was_asked_for_stays(sandbox: Any) -> None:
    """An integration of an agent that has one is the user's wish, in each launch that does not use it too."""
    sandbox.agent("true", "openclaw")
    file = sandbox.home / ".openclaw" / "openclaw.json"
    file.parent.mkdir()
    integrate.write(integrate.integrate("openclaw", file, {("a",): 1}, "json5"), find_paths(sandbox.env))
    text = file.read_text()
    assert sandbox.run("launch", "openclaw", fake=True).returncode == 0
    assert file.read_text() == text
    assert sandbox.run("engine", "stop", fake=True).returncode == 0
