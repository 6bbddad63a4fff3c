"""A published agent at work before a real engine, and the dashboard beside it: what it shows against a stopwatch at the agent's
side of the socket, and against the usage that the agent was told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ftagent.dashboard.widgets.units import tokens
from tests.ftagent.dashboard.stopwatch import stopwatch
from tests.ftagent.dashboard.terminal import Terminal, agrees, duration, number

pytestmark = [pytest.mark.agents, pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")]

INSTALL = Path(__file__).parents[2] / "agents" / "install.py"
SCRIPT = {
    "turns": [
        {"blocks": [{"text": "I look."}, {"tool": "bash", "args": {"command": "seq 1 150; ls"}}]},
        {"blocks": [{"tool": "read", "args": {"path": "notes.txt"}}]},
        {"blocks": [{"text": "All is well, all is done."}]},
    ],
    "side": "A title",
}
AGENTS = {"pi": ("-p", "Look around."), "claude": ("-p", "Look around."), "opencode": ("run", "Look around.")}


def install(sandbox: Any, agent: str) -> None:
    done = subprocess.run([sys.executable, str(INSTALL), agent], capture_output=True, text=True)
    if "npm is not installed" in done.stderr:
        pytest.skip(f"{agent} cannot be installed: npm is not installed")
    found = json.loads(done.stdout)
    folders = [str(Path(found["executable"]).parent), *found["path"]]
    sandbox.env["PATH"] = os.pathsep.join([*folders, "/usr/local/bin:/usr/bin:/bin"])


@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    "agent", ["pi", *(pytest.param(name, marks=pytest.mark.slow) for name in ("claude", "opencode"))]
)
def test_numbers_on_the_screen_are_those_at_the_agents_side(sandbox: Any, models_dir: Path, agent: str) -> None:
    install(sandbox, agent)
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2", "FT_KV": "64k"}
    (sandbox.root / "script.json").write_text(json.dumps(SCRIPT))
    (sandbox.project / "notes.txt").write_text("\n".join(f"line {i} of the notes" for i in range(60)))
    assert sandbox.run("engine", "start", "-q", timeout=200).returncode == 0
    screen = Terminal(sandbox, "top", columns=150, rows=40)
    try:
        record = json.loads((sandbox.runtime / "engine.json").read_text())
        with stopwatch(record["port"]) as watch:
            screen.see("READY")
            env = {"FT_ENGINE_TOKEN": record["admin_token"]}
            options = ["--engine", watch.url, "--force", "--script", str(sandbox.root / "script.json")]
            done = sandbox.run("launch", agent, *options, "--", *AGENTS[agent], env=env, timeout=300)
            assert done.returncode == 0 and "all is done" in done.stdout, (done.stdout, done.stderr)
        said = [seen for seen in watch.answers if seen.prompt > 500]  # no title
        assert len(said) >= 3
        _turns(screen, watch.answers)
        screen.press("1")
        row = screen.see(rf"{agent}\S* +{agent}[^\n]*ended[^\n]*").group()
        assert f" {tokens(said[-1].prompt + said[-1].output)}/" in row
        last = re.search(r"(\S+) / \S+s ", row)
        assert last is not None and agrees(duration(last[1]), said[-1].first_s or 0.0), row
        screen.press("Enter")
        sums = [sum(getattr(seen, name) for seen in watch.answers) for name in ("prompt", "cached", "output")]
        screen.see(r"tokens +prompt {:,} +cached {:,} .*output {:,} ".format(*sums))
        longest = screen.see(r"longest (\S+)")[1]
        assert agrees(duration(longest), max(seen.first_s or 0.0 for seen in watch.answers))
        receipt = screen.see(r"receipts(?:.*\n)+?.*?(\d\d-\d\d \d\d:\d\d) +(\S+) +0 +(\d+) ")
        assert number(receipt[3]) == len(watch.answers), screen.text()
    finally:
        screen.close()
        sandbox.run("engine", "stop", timeout=120)


def _turns(screen: Terminal, answers: list[Any]) -> None:
    """Every request in the table of turns, the newest first."""
    screen.press("t")
    screen.see(rf"Turns ─+ {len(answers)} ")
    for told in reversed(answers):
        text = screen.see(rf"(?s)prompt {told.prompt:,} = .*{told.output} out").string
        split = re.search(r"prompt ([\d,]+) = cached ([\d,]+)(?: \+ replayed ([\d,]+))? \+ new ([\d,]+)", text)
        assert split is not None, text
        prompt, cached, replayed, new = (number(part or "0") for part in split.groups())
        assert (prompt, cached) == (told.prompt, told.cached) and cached + replayed + new == prompt, text
        first = re.search(r"first token (\S+), .*?   ([\d,]+) out", text)
        assert first is not None and number(first[2]) == told.output, text
        assert told.first_s is not None and agrees(duration(first[1]), told.first_s), (first[1], told)
        screen.press("j")
