"""Whatever ft has written on a machine stands in `ft uninstall --dry-run`, and is gone afterwards: a walk over the whole home."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ftagent.sessions import PI

SCRIPT = {
    "turns": [
        {"blocks": [{"text": "I write."}, {"tool": "write", "args": {"path": "by-mini.txt", "content": "x\n"}}]},
        {"blocks": [{"text": "Done."}]},
    ]
}
NPM = """#!/bin/sh
mkdir -p "$3/node_modules/.bin" "$npm_config_cache/_logs"; echo log > "$npm_config_cache/_logs/debug.log"
printf "#!/bin/sh\\necho ours 0.73.1\\n" > "$3/node_modules/.bin/pi"; chmod 755 "$3/node_modules/.bin/pi"
"""


def everything(root: Path) -> dict[Path, bytes | None]:
    """Each path with its bytes; folders and links have none."""
    return {
        path: path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in root.rglob("*")
        if not path.is_socket()
    }


@pytest.mark.parametrize("layout", ["xdg", pytest.param("ft_home", marks=pytest.mark.slow)])
def test_all_that_was_written_is_listed_and_removed(sandbox: Any, models_dir: Path, layout: str) -> None:
    """Two launches, an integration, an installation, settings, a worktree, a report, completions: by the real programs but npm."""
    run = sandbox.root / "run"
    run.mkdir(mode=0o700)
    sandbox.env |= {
        "FT_MODELS_DIR": str(models_dir),
        "FT_MODEL": "tiny-hybrid",
        "FT_THREADS": "2",
        "XDG_RUNTIME_DIR": str(run),
    }
    sandbox.env["TMPDIR"] = str(sandbox.root / "tmp")
    (sandbox.root / "tmp").mkdir()
    if layout == "xdg":
        del sandbox.env["FT_HOME"]
    (sandbox.bin / "npm").write_text(NPM)
    (sandbox.bin / "npm").chmod(0o755)
    sandbox.agent("exit 0", "openclaw")
    sandbox.agent(PI)
    mine = sandbox.home / ".openclaw" / "openclaw.json"
    mine.parent.mkdir()
    mine.write_text("{\n  // mine\n}\n")
    (sandbox.project / ".git" / "HEAD").unlink()
    git = ["git", "-C", str(sandbox.project), "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *command], check=True, env=sandbox.env)
    (sandbox.root / "script.json").write_text(json.dumps(SCRIPT))
    before = everything(sandbox.root)
    for arguments in (
        ["config", "set", "wait", "90"],
        ["config", "set", "ctx", "64k", "--project"],
        ["config", "set", "port", sandbox.env["FT_PORT"], "--project"],
        ["config", "trust", "--yes"],
        ["launch", "mini", "--force", "--script", str(sandbox.root / "script.json"), "--", "Make a file."],
        ["launch", "openclaw", "--integrate"],
        ["launch", "pi", "--worktree", "fix", "--force"],
        ["agents", "install", "pi", "--yes"],
        ["engine", "restart", "-q"],
        ["ctl", "requests"],
        ["doctor"],
        ["bench", "report"],
        ["sessions", "rename", "pi", "other"],
        ["completion", "--values", "sessions"],
        ["report", "-o", str(sandbox.root / "asked-for.zip")],
    ):
        done = sandbox.run(*arguments, timeout=180)
        assert done.returncode == 0, (arguments, done.stderr)
    running = sandbox.run("uninstall", "--yes")
    assert running.returncode == 6 and "ft engine stop" in running.stderr
    listed_while_running = json.loads(sandbox.run("uninstall", "--dry-run", "--json").stdout)["items"]
    assert sandbox.run("engine", "stop").returncode == 0
    after = everything(sandbox.root)
    items = json.loads(sandbox.run("uninstall", "--dry-run", "--json").stdout)["items"]
    assert everything(sandbox.root) == after, "the list itself wrote something"
    assert {item["kind"] for item in listed_while_running} >= {"runtime", "state", "data"}
    listed = [Path(item["path"]) for item in items]
    asked = [sandbox.root / "asked-for.zip", sandbox.project / "by-mini.txt", sandbox.project / ".git"]
    asked += [sandbox.home / ".pi"]  # the agent's own
    written = [path for path, data in after.items() if path not in before or before[path] != data]
    unlisted = [
        str(path)
        for path in written
        if not any(path.is_relative_to(known) for known in [*listed, *asked])
        and not (path.is_dir() and any(known.is_relative_to(path) for known in listed))
    ]
    assert unlisted == []
    kept = [Path(item["path"]) for item in items if item["action"] == "keep"]
    assert {item["kind"] for item in items if item["action"] == "keep"} == {
        "settings of a project",
        "git worktree",
        "models",
    }
    assert sum(item["bytes"] or 0 for item in items if item["action"] == "remove") > 1000
    assert sandbox.run("uninstall", "--yes").returncode == 0
    assert mine.read_bytes() == before[mine]
    left = [
        str(path)
        for path in everything(sandbox.root)
        if path not in before
        and not any(path.is_relative_to(known) or known.is_relative_to(path) for known in [*kept, *asked])
        and path.name not in (".config", ".local", ".cache", "state", "share")
    ]
    assert left == []


@pytest.mark.parametrize("other", ["a lease", "nothing of ours"])
def test_what_another_home_keeps_in_the_runtime_folder_is_not_ours(sandbox: Any, other: str) -> None:
    """One user may have several homes, and they all have one folder for what runs."""
    run = sandbox.root / "run"
    leases = run / "ft" / "leases"
    leases.mkdir(parents=True, mode=0o700)
    sandbox.env["XDG_RUNTIME_DIR"] = str(run)
    del sandbox.env["FT_HOME"]
    (run / "ft" / "start.lock").touch()
    session = sandbox.home / ".local" / "state" / "ft" / "sessions" / "s-aaaaaaaaaa"
    listed: set[str] = set()
    if other == "a lease":
        session.mkdir(parents=True)
        (leases / "s-bbbbbbbbbb.json").touch()
        (leases / "s-aaaaaaaaaa.json").touch()
        listed = {str(session.parent), str(leases / "s-aaaaaaaaaa.json")}
    items = json.loads(sandbox.run("uninstall", "--dry-run", "--json").stdout)["items"]
    assert {item["path"] for item in items} == listed
    assert sandbox.run("uninstall", "--yes").returncode == 0
    assert (run / "ft" / "start.lock").exists() and not session.exists()
    assert (leases / "s-bbbbbbbbbb.json").exists() == (other == "a lease")
