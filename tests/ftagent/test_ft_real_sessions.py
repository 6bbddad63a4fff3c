"""Sessions on the real engine: what an agent does inside of itself, a restart of the engine, and what is kept of one that is removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# What Claude Code does on the wire: settings from the file it is given, its own id in a header; a new one after /clear.
CLAUDE = """
import json, sys, urllib.request
words = sys.argv[1:]
settings = json.load(open(words[words.index("--settings") + 1]))["env"]
given = next((words[words.index(flag) + 1] for flag in ("--session-id", "--resume") if flag in words), None)
print("given", given, flush=True)
def ask(id_, text):
    body = {"model": "m", "max_tokens": 8, "stream": False, "system": "You work with care, in small steps. " * 60,
            "tools": [{"name": "Bash", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}],
            "messages": [{"role": "user", "content": text}]}
    headers = {"content-type": "application/json", "x-claude-code-session-id": id_, "user-agent": "claude-cli/2.1.332 (external, cli)",
               "authorization": "Bearer " + settings["ANTHROPIC_AUTH_TOKEN"], "anthropic-version": "2023-06-01"}
    url = settings["ANTHROPIC_BASE_URL"] + "/v1/messages"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60).read()
for id_ in [given, *[word.partition("=")[2] for word in words if word.startswith("clear=")]]:
    ask(id_, "The question of " + id_)
"""
CLEARED = "5f0c0000-0000-4000-8000-00000000000b"


@pytest.fixture
def real(sandbox: Any, models_dir: Path) -> Iterator[Any]:
    """The real engine with the tiny model, and an agent called claude."""
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2", "FT_KV": "64k"}
    (sandbox.root / "claude.py").write_text(CLAUDE)
    program = sandbox.bin / "claude"
    version = '[ "$1" = --version ] && echo "2.1.332 (Claude Code)" && exit 0'
    program.write_text(f'#!/bin/sh\n{version}\nexec {sys.executable} {sandbox.root}/claude.py "$@"\n')
    program.chmod(0o755)
    yield sandbox
    assert sandbox.run("engine", "stop").returncode == 0


def listed(box: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(box.run("ls", "--json").stdout)["sessions"]
    return found


def test_a_clear_inside_of_the_agent_is_followed_over_a_restart_and_forgotten_with_the_session(real: Any) -> None:
    first = real.run("launch", "claude", "--force", "--", "clear=" + CLEARED, timeout=120)
    assert first.returncode == 0, first.stderr
    (session,) = listed(real)
    links = {one["id"]: one for one in session["harness"]}
    assert list(links)[-1] == CLEARED and len(links) == 2
    assigned = next(id_ for id_ in links if id_ != CLEARED)
    assert (links[assigned]["source"], links[assigned]["ended_by"]) == ("assigned", "clear")
    assert (links[CLEARED]["source"], links[CLEARED]["confidence"]) == ("observed", "certain")
    assert real.run("engine", "restart", "-q", timeout=120).returncode == 0
    kept = real.ft_home / "data" / "checkpoints"
    assert list(kept.rglob("*.kv")), "nothing was kept over the restart"
    transcript = real.home / ".claude" / "projects" / str(real.project).replace("/", "-").replace("_", "-")
    transcript.mkdir(parents=True)
    (transcript / f"{CLEARED}.jsonl").write_text("{}\n")
    again = real.run("resume", "claude", "--force", timeout=120)
    assert again.returncode == 0, again.stderr
    assert f"given {CLEARED}" in again.stdout and "resuming:" in again.stderr and "from disk" in again.stderr
    (session,) = listed(real)
    assert len(session["runs"]) == 2 and session["stats"]["requests"] == 3

    other = real.run("launch", "claude", "--new", "-n", "other", "--force", timeout=120)
    assert other.returncode == 0, other.stderr
    assert real.run("engine", "stop", timeout=120).returncode == 0
    before = {path.name for path in kept.rglob("*.kv")}
    dry = real.run("sessions", "rm", "claude", "--dry-run")
    assert dry.returncode == 0 and "checkpoint" in dry.stderr
    done = real.run("sessions", "rm", "claude", "--yes")
    assert done.returncode == 0, done.stderr
    assert "checkpoint" in done.stderr and f"conversation {CLEARED}" in done.stderr
    after = {path.name for path in kept.rglob("*.kv")}
    assert after < before and after, "the beginning that the other session goes on from is gone, or nothing is"
    assert not list(kept.rglob(session["id"]))
    warm = real.run("resume", "other", "--force", timeout=120)
    assert warm.returncode == 0 and "from disk" in warm.stderr, warm.stderr
    running = real.run("sessions", "rm", "other", "--yes")
    assert running.returncode == 0 and "checkpoint" in running.stderr, running.stderr
    assert real.run("sessions", "prune", "--days", "0", "--json").returncode == 0
    assert not list(kept.rglob("*.kv")), "an engine that runs keeps something of sessions that are gone"
