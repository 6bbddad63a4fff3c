"""How the engine's own command line is called: another process, isolated from the user's Python settings."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from ftagent.isolation import engine_environment


def engine_command(*arguments: str) -> list[str]:
    """The engine as a separate, isolated process: `-P` keeps the current folder out of its imports."""
    return [sys.executable, "-P", "-m", "engine", *arguments]


def foreground_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The engine's environment where its errors go to the person who typed the command, in our own form."""
    return {**engine_environment(env), "FT_ASKED_BY": "ft"}


def unknown_flags(env: Mapping[str, str], command: str, words: Sequence[str]) -> list[str]:
    """Of flags that are passed on unread, those that the engine's command does not have: found out before anything is made."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    if not flags:
        return []
    told = subprocess.run(
        engine_command(command, "--help"), env=foreground_environment(env), capture_output=True, text=True, timeout=60
    )
    known = set(re.findall(r"--[a-z][a-z0-9-]*", told.stdout))
    return [flag for flag in flags if flag not in known] if known else []


def run_engine_tool(
    env: Mapping[str, str], *arguments: str, output_to_stderr: bool = False, keep: Sequence[str] = ()
) -> int:
    """Runs a short engine subcommand in the foreground; returns its exit code, 128+n when signal n ended it. Of the credentials in
    `env` it gets those named in `keep`."""
    output = sys.stderr if output_to_stderr else None
    environment = {**foreground_environment(env), **{name: env[name] for name in keep if name in env}}
    with subprocess.Popen(engine_command(*arguments), env=environment, stdout=output) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue  # the terminal has sent it to the child as well, which decides
            return 128 - code if code < 0 else code
