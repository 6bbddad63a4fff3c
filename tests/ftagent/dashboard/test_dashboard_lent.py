"""The terminal lent to an agent and taken back: a new session from its form, its receipt, going on with it, attaching to one that
runs detached. A real terminal and a real engine; the agent is a few lines of shell that say how the terminal is set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ftagent.dashboard.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
AGENT = """
flags=$(stty -a < /dev/tty | tr ' ;' '\\n\\n' | grep -E '^-?(echo|isig|icanon)$' | sort | tr '\\n' ' ')
echo "AGENT HERE $flags"
read line
echo "GOT $line"
exit 3
"""


@pytest.mark.timeout(600)
def test_the_terminal_is_the_agents_until_it_ends_and_then_the_dashboards(sandbox: Any, models_dir: Path) -> None:
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2", "FT_KV": "16k"}
    sandbox.env["TMUX_TMPDIR"] = str(sandbox.root)
    sandbox.agent(AGENT)
    assert sandbox.run("engine", "start", "-q", timeout=200).returncode == 0
    screen = Terminal(sandbox, "top", columns=130, rows=40)
    try:
        screen.see("READY")
        _form(screen)
        screen.see("Plan: pi")
        screen.press("Tab", "m", "i", "n", "e")
        screen.see("ft launch pi --name mine")
        screen.press("Enter")
        assert screen.see(r"AGENT HERE (.*)")[1].split() == ["echo", "icanon", "isig"], "the terminal is its own"
        screen.press("h", "i", "Enter")
        screen.see("GOT hi")
        screen.see(r"ft: session mine \(s-\w+\) ended")
        screen.see(r"\[exit 3\] Enter goes back")
        screen.press("Enter")
        screen.see(r"mine +pi 0.73.1 +. ended")
        assert "GOT hi" not in screen.text()
        screen.press("Enter")
        screen.see(r"(?s)receipts.*\d\d-\d\d \d\d:\d\d +\S+ +3 ")
        screen.press("C-c", "Escape")  # it is not left by one Ctrl+C
        _detached(screen)
        screen.press("q")
        screen.see("ended with 0")
    finally:
        screen.close()
        sandbox.run("engine", "stop", timeout=120)
    kept = [json.loads(path.read_text()) for path in sandbox.ft_home.glob("state/sessions/s-*/session.json")]
    assert sorted((one["name"], one["runs"][-1]["exit"]) for one in kept) == [("far", 3), ("mine", 3)]


def _form(screen: Terminal) -> None:
    """Open, and on pi."""
    screen.press("n")
    shown = screen.see(r"> agent +(\w+)_")[1]
    while shown != "pi":
        screen.press("Right")
        shown = screen.see(rf"> agent +(?!{shown}_)(\w+)_")[1]


def _detached(screen: Terminal) -> None:
    """One that was started in the background is attached to, and comes back when it has ended."""
    screen.see("Sessions")
    _form(screen)
    screen.press("Tab", "f", "a", "r", "Tab", "Tab", "Tab", *"--detach")
    screen.see("ft launch pi --name far --detach")
    screen.press("Enter")
    screen.see(r"\[done\] Enter goes back")
    screen.press("Enter")
    screen.see(r"far +pi")
    screen.press("/", *"far", "Enter")
    screen.see(r"/far")
    screen.see(r"far +pi 0.73.1 +. (?!ended)")
    screen.press("r")
    screen.see(r"(?s)AGENT HERE.*\[ft-s-")  # tmux within tmux
    screen.press("h", "o", "Enter")
    screen.see(r"\[exited\]\s+\[done\] Enter goes back")
    screen.press("Enter")
    screen.see(r"far +pi 0.73.1 +. ended")
