"""A launch in the background: tmux holds the terminal, ft inside of it holds the agent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ftagent.atomic import write_json
from ftagent.errors import Conflict, LaunchFailed
from ftagent.paths import Paths, ensure
from ftagent.session.leases import lease_is_held

ID_VARIABLE = "FT_DETACHED_SESSION"
MISSING = "tmux is not installed, and ft keeps no terminals of its own."
_LOOK_S = 0.1


def tmux(env: Mapping[str, str]) -> str:
    """Raises Conflict (exit 6) without tmux."""
    found = shutil.which("tmux", path=env.get("PATH", os.defpath))
    if found is None:
        raise Conflict(MISSING, "Install tmux, or leave --detach out.", code="FT-E0614 no-tmux")
    return found


def name_of(session_id: str) -> str:
    return f"ft-{session_id}"


def start(session_id: str, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, paths: Paths) -> None:
    """Runs `ft` with `arguments` in a tmux session of its own and waits until the agent's lease is held.

    The environment goes through a file (0600) that the inner process removes: arguments of tmux can be read by everyone.
    Raises LaunchFailed when it ended before.
    """
    program = tmux(env)
    ensure(paths.state)
    ensure(paths.runtime)
    file = paths.runtime / f"detach-{session_id}.json"
    write_json(file, {"arguments": list(arguments), "env": {**env, ID_VARIABLE: session_id}, "cwd": str(cwd)})
    inner = [sys.executable, "-P", "-m", "ftagent.launch.detach", str(file)]
    made = subprocess.run(
        [program, "new-session", "-d", "-s", name_of(session_id), "-c", str(cwd), "--", *inner],
        env=dict(env),
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        file.unlink(missing_ok=True)
        raise LaunchFailed(f"tmux started nothing: {made.stderr.strip()}.", "Leave --detach out.")
    while not lease_is_held(paths, session_id):
        if not is_there(program, session_id, env):
            if (paths.sessions / session_id / "session.json").exists():
                return  # it was quick
            raise LaunchFailed("The launch inside of tmux ended before the agent ran.", "Try it without --detach.")
        time.sleep(_LOOK_S)


def is_there(program: str, session_id: str, env: Mapping[str, str]) -> bool:
    command = [program, "has-session", "-t", f"={name_of(session_id)}"]
    return subprocess.run(command, env=dict(env), capture_output=True).returncode == 0


def attach(program: str, session_id: str) -> NoReturn:
    """Becomes tmux. Within a tmux its client is switched there: it shows no tmux in itself."""
    verb = "switch-client" if os.environ.get("TMUX") else "attach-session"
    os.execv(program, [program, verb, "-t", f"={name_of(session_id)}"])  # noqa: S606 - no shell


def _inside(file: Path) -> NoReturn:
    told = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    env = told["env"]
    env.update({name: os.environ[name] for name in ("TERM", "TMUX", "TMUX_PANE") if name in os.environ})
    os.chdir(told["cwd"])
    command = [sys.executable, "-P", "-m", "ftagent", *told["arguments"]]
    os.execve(sys.executable, command, env)  # noqa: S606 - an argument list, no shell


if __name__ == "__main__":
    _inside(Path(sys.argv[1]))
