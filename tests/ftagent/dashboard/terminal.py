"""`ft` in a terminal of its own, as a person sees it; and numbers as screens write them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from typing import Any

COLUMNS, ROWS = 140, 44


class Terminal:
    """`ft` in a tmux of its own."""

    def __init__(self, box: Any, *arguments: str, columns: int = COLUMNS, rows: int = ROWS, **env: str) -> None:
        self.socket = box.root / "tmux"
        words = ["env", "-i", *(f"{k}={v}" for k, v in {**box.env, "TERM": "tmux-256color", **env}.items())]
        command = shlex.join([*words, sys.executable, "-P", "-m", "ftagent", *arguments])
        shell = f"cd {shlex.quote(str(box.project))}; {command}; echo ended with $?; sleep 60"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), shell)

    def tmux(self, *words: str) -> str:
        return subprocess.run(["tmux", "-u", "-S", str(self.socket), *words], capture_output=True, text=True).stdout

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.tmux("send-keys", key)

    def see(self, pattern: str, limit_s: float = 120.0) -> re.Match[str]:
        deadline = time.monotonic() + limit_s
        while not (found := re.search(pattern, self.text())):
            assert time.monotonic() < deadline, f"{pattern} did not show:\n{self.text()}"
            time.sleep(0.1)
        return found

    def close(self) -> None:
        self.tmux("kill-server")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def duration(text: str) -> float:
    """As units.seconds writes it."""
    minutes, _, rest = text.rpartition("m") if re.fullmatch(r"\d+m\d\ds", text) else ("", "", text)
    value = float(rest.rstrip("ms")) / 1000 if rest.endswith("ms") else float(rest.rstrip("s"))
    return 60 * int(minutes or 0) + value


def agrees(shown_s: float, measured_s: float) -> bool:
    """Within 10 %; of what is short within what a busy machine may add between two looks at the clock."""
    return abs(shown_s - measured_s) <= max(0.1 * measured_s, 0.35)
