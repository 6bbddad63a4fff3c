"""Every command once where things are not as they should be: it works or says why in a sentence, with a known exit code."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ftagent.commandline.model import commands, flatten

CODES = {0, 1, 2, 3, 4, 5, 6, 75, 125, 126, 127}
# What a command needs beside its name. Nothing here starts an engine or asks a network.
GOOD = {
    "agents install": ["pi", "--dry-run"],
    "agents update": ["pi"],
    "agents card": ["pi"],
    "bench": ["report"],
    "completion": ["--values", "sessions"],
    "config get": ["port"],
    "config set": ["wait", "90"],
    "engine plan": ["-m", "nosuch"],
    "engine start": ["--dry-run"],
    "engine restart": ["--dry-run"],
    "env": ["--no-start"],
    "launch": ["mini", "--no-start", "--", "x"],
    "man": ["--markdown"],
    "models": ["ls"],
    "report": ["-o", "report.zip"],
    "restore": ["--list"],
    "run": ["--no-start", "hi"],
    "serve": ["-m", "nosuch"],
    "sessions rename": ["nobody", "name"],
    "uninstall": ["--dry-run"],
}
QUICK = (
    "ls",
    "status",
    "config set",
    "config show",
    "launch",
    "doctor",
    "engine start",
    "sessions show",
    "report",
    "models",
)


@dataclass(frozen=True)
class Place:
    """How it is hostile: shell commands of a mount namespace of its own, and variables."""

    mounts: str = ""
    env: dict[str, str | None] | None = None


def places(box: Any) -> dict[str, Place]:
    home, own = shlex.quote(str(box.home)), shlex.quote(str(box.ft_home))

    def readonly(path: str) -> str:
        return f"mount --bind {path} {path} && mount -o remount,ro,bind {path}"

    full = f"mount -t tmpfs -o size=256k none {own} && {{ cat /dev/zero > {own}/fill 2>/dev/null; true; }}"
    odd = box.root / 'a folder with "quotes", ünïcode 雪 and $HOME'
    odd.mkdir()
    return {
        "home-read-only": Place(readonly(home), {"FT_HOME": None}),
        "state-read-only": Place(readonly(own)),
        "disk-full": Place(full),
        "odd-folder": Place(env={"FT_HOME": str(odd), "TERM": "dumb"}),
        "no-variables": Place(env=dict.fromkeys(("HOME", "LANG", "TERM"))),
        "plain-locale": Place(env={"LANG": "C", "LC_ALL": "C", "NO_COLOR": "1"}),
        "narrow": Place(env={"COLUMNS": "40", "LINES": "8"}),
    }


NAMES = ("home-read-only", "state-read-only", "disk-full", "odd-folder", "no-variables", "plain-locale", "narrow")


def can_mount() -> bool:
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def arguments_of(path: str, values: int) -> list[str]:
    return [*path.split(), *GOOD.get(path, ["nobody"] if values and path.startswith("sessions ") else [])]


def paths() -> list[tuple[str, int]]:
    return [(model.path, len(model.values)) for model in flatten(commands()) if not model.children]


def call(box: Any, place: Place, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    env = {**box.env, **(place.env or {})}
    command = [sys.executable, "-P", "-m", "ftagent", *arguments]
    if place.mounts:
        command = ["unshare", "-m", "sh", "-c", f"{place.mounts} || exit 99; exec {shlex.join(command)}"]
    given = {name: value for name, value in env.items() if value is not None}
    return subprocess.run(
        command, env=given, cwd=box.project, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


def is_said(arguments: list[str], done: subprocess.CompletedProcess[str]) -> None:
    told = f"{shlex.join(arguments)}: {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-1500:]}"
    assert done.returncode in CODES, told
    assert "Traceback" not in done.stdout + done.stderr, told
    assert "Exception ignored" not in done.stderr, told
    assert "\x1b" not in done.stdout + done.stderr, told
    if done.returncode and arguments[0] == "doctor":
        assert "FAIL" in done.stdout, told
    elif done.returncode and arguments[0] != "status" and arguments[:2] != ["engine", "status"]:
        assert any(line.startswith("ft: ") for line in done.stderr.splitlines()), told


def walk(box: Any, name: str, wanted: Callable[[str], bool]) -> None:
    place = places(box)[name]
    if place.mounts and not can_mount():
        pytest.skip("no mount namespace of its own is permitted")
    for path, values in paths():
        if wanted(path):
            arguments = arguments_of(path, values)
            is_said(arguments, call(box, place, arguments))


@pytest.mark.parametrize("name", NAMES)
def test_the_usual_commands(sandbox: Any, name: str) -> None:
    walk(sandbox, name, lambda path: path in QUICK)


@pytest.mark.skipif(not can_mount(), reason="no mount namespace of its own is permitted")
@pytest.mark.parametrize(
    ("name", "words"), [("state-read-only", "cannot be written to"), ("disk-full", "bytes are free")]
)
def test_the_doctor_finds_it(sandbox: Any, name: str, words: str) -> None:
    assert call(sandbox, Place(), ["doctor"]).returncode == 0
    done = call(sandbox, places(sandbox)[name], ["doctor"])
    assert done.returncode == 1 and words in done.stdout, done


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_every_command(sandbox: Any, name: str) -> None:
    walk(sandbox, name, lambda path: path not in QUICK)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_command_refuses_what_it_does_not_know(sandbox: Any) -> None:
    """A flag that is none, and a value of bytes that are no text."""
    usual = Place()
    before = sandbox.tree()
    for path, values in paths():
        done = call(sandbox, usual, [*path.split(), "--nonsense"])
        is_said(path.split(), done)
        assert done.returncode == 2, f"ft {path} --nonsense: {done.returncode} {done.stderr}"
        if values and path not in ("run", "launch"):
            garbage = [*path.split(), b"\xff\x01 x/../..".decode("utf-8", "surrogateescape")]
            is_said(path.split(), call(sandbox, usual, garbage))
    new = [path for path in sandbox.tree() if path not in before and "/cache" not in path]
    assert new == []


def test_a_reader_that_goes_away(sandbox: Any) -> None:
    """`ft … | head -1` of everything that prints much."""
    for arguments in (
        ["help", "all"],
        ["man", "--markdown"],
        ["config", "show"],
        ["schema", "ft.plan/1"],
        ["completion", "zsh"],
    ):
        ft = shlex.join([sys.executable, "-P", "-m", "ftagent", *arguments])
        done = subprocess.run(
            ["bash", "-c", f"{ft} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"],
            env=sandbox.env,
            cwd=Path(sandbox.project),
            capture_output=True,
            text=True,
        )
        assert done.stderr == "" and done.stdout.strip() in ("0", "141"), (arguments, done)
