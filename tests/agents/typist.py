"""A person at a terminal: waits for words on the screen, types, presses keys. For agents whose entry point is a screen.

    python typist.py SPEC.json

SPEC: {"argv", "steps": [{"see" or "gone": regex, "within_s", "again": [key, ...]} | {"type": text} | {"press": [key, ...]}], "dialogs": {regex: [key, ...]},
"quit": [[key, ...], ...], "folder"}. While it waits it answers each of
`dialogs` once, when that shows, and presses the keys of `again` every few seconds: a screen may overlook the first Enter. After the steps the
keys of `quit` are pressed, one list after the other, until the program has ended. Prints the screens; exits with the
program's code, 125 when something did not show, 124 when the program would not end. Needs tmux.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS, ROWS = 140, 50
LOOK_S = 0.2
AGAIN_S = 6.0
SETTLE_S = 0.6  # between typing and Enter: several agents take both at once for a paste
END_S = 20.0


class Screen:
    def __init__(self, argv: list[str], folder: Path) -> None:
        self.code = folder / "code"
        self.socket = str(folder / "tmux.sock")
        command = f"{shlex.join(argv)}; echo $? > {shlex.quote(str(self.code))}; sleep 60"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), command)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-u", "-S", self.socket, *words], capture_output=True, text=True)
        return done.stdout

    def text(self) -> str:
        lines = self._tmux("capture-pane", "-p", "-S", "-200").splitlines()
        return "\n".join(line.rstrip() for line in lines if line.strip())

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        time.sleep(SETTLE_S)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(LOOK_S)

    def ended(self) -> int | None:
        text = self.code.read_text().strip() if self.code.exists() else ""
        return int(text) if text else None

    def close(self) -> None:
        self._tmux("kill-server")


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    screen = Screen(spec["argv"], Path(spec["folder"]))
    try:
        return _work(screen, spec)
    finally:
        screen.close()


def _work(screen: Screen, spec: dict[str, Any]) -> int:
    dialogs = dict(spec["dialogs"])
    for step in spec["steps"]:
        if "within_s" in step:
            wanted = {kind: step[kind] for kind in ("see", "gone") if kind in step}
            if not _see(screen, step, dialogs):
                print(f"--- not within {step['within_s']} s: {wanted}\n{screen.text()}")
                return 125
            print(f"--- {wanted}\n{screen.text()}", flush=True)
        elif "type" in step:
            screen.type(step["type"])
        else:
            screen.press(*step["press"])
    for keys in spec["quit"]:
        screen.press(*keys)
        end = time.monotonic() + END_S / len(spec["quit"])
        while screen.ended() is None and time.monotonic() < end:
            time.sleep(LOOK_S)
    print(f"--- at the end\n{screen.text()}")
    code = screen.ended()
    return 124 if code is None else code


def _see(screen: Screen, step: dict[str, Any], dialogs: dict[str, list[str]]) -> bool:
    end = time.monotonic() + step["within_s"]
    again = time.monotonic() + AGAIN_S
    while time.monotonic() < end:
        text = screen.text()
        for pattern in [pattern for pattern in dialogs if re.search(pattern, text)]:
            print(f"--- a dialog: {pattern}\n{text}", flush=True)
            time.sleep(SETTLE_S)
            screen.press(*dialogs.pop(pattern))
            time.sleep(SETTLE_S)
            text = screen.text()
        if re.search(step["see"], text) if "see" in step else not re.search(step["gone"], text):
            return True
        if screen.ended() is not None:
            return False
        if time.monotonic() > again:
            screen.press(*step.get("again", []))
            again = time.monotonic() + AGAIN_S
        time.sleep(LOOK_S)
    return False


sys.exit(main())
