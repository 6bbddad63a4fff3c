"""`ft top` as a process: one frame where there is no terminal, JSON, recordings; and what it does not import."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ftagent.dashboard.mock import SCENARIOS
from ftagent.schemas import schema_of


def test_without_a_terminal_one_plain_frame_is_printed_and_that_is_success(sandbox: Any) -> None:
    for arguments in (["top"], ["top", "--once"], ["top", "--mock", "four"]):
        done = sandbox.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("engine") and "\x1b" not in done.stdout
    assert "stopped" in sandbox.run("top", "--once").stdout


def test_json_has_its_schema_with_and_without_an_engine(sandbox: Any) -> None:
    for arguments in (["top", "--json"], ["top", "--once", "--json", "--mock", "watchdog"]):
        done = sandbox.run(*arguments)
        assert done.returncode == 0
        jsonschema.validate(json.loads(done.stdout), schema_of("ft.dashboard/1"))


def test_what_cannot_be_shown_is_refused_with_what_can(sandbox: Any) -> None:
    assert all(name in sandbox.run("top", "--mock", "nothing").stderr for name in SCENARIOS)
    for arguments in (["--mock", "x"], ["--fps", "0"], ["--fps", "99"], ["--mock", "four", "--replay", "f"]):
        assert sandbox.run("top", "--once", *arguments).returncode == 2
    assert sandbox.run("top", "--replay", "absent", "--once").returncode == 3
    (sandbox.project / "damaged").write_bytes(b"x")
    assert sandbox.run("top", "--replay", "damaged", "--once").returncode == 4


def test_a_recording_is_written_and_its_last_frame_shown(sandbox: Any) -> None:
    done = sandbox.run("top", "--mock", "four", "--fps", "10", "--record", "flight", "--seconds", "1.5")
    assert done.returncode == 0 and "--replay flight" in done.stderr
    shown = json.loads(sandbox.run("top", "--replay", "flight", "--json").stdout)
    assert shown["source"] == "replay flight" and shown["readonly"] and len(shown["sessions"]) == 4


@pytest.mark.parametrize("arguments", [["--help"], ["top", "--once"], ["top", "--mock", "four"]])
def test_nothing_heavy_is_imported_for_one_frame(sandbox: Any, arguments: list[str]) -> None:
    code = "import sys; from ftagent.cli import main; main(sys.argv[1:]); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env=sandbox.env,
        cwd=sandbox.project,
        capture_output=True,
        text=True,
    )
    loaded = {name.partition(".")[0] for name in eval_list(done.stderr)}
    assert not loaded & {"torch", "numpy", "textual", "rich", "httpx", "engine", "transformers"}


def eval_list(text: str) -> list[str]:
    """The printed list of names."""
    return [name.strip(" '[]") for name in text.strip().splitlines()[-1].split(",")]


def test_a_terminal_without_a_cursor_gets_the_status_again_and_again(sandbox: Any) -> None:
    master, slave = pty.openpty()
    env = {**sandbox.env, "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ftagent", "top"],
        env=env,
        cwd=sandbox.project,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    try:
        while b"sessions" not in shown:
            shown += os.read(master, 4096)
    finally:
        process.terminate()
        process.wait(20)
        os.close(master)
    assert b"engine    stopped" in shown and b"\x1b" not in shown


def test_status_watches_until_it_is_ended(sandbox: Any) -> None:
    assert sandbox.run("status", "--watch", "--json").returncode == 2
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ftagent", "status", "--watch"],
        env=sandbox.env, cwd=sandbox.project, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)][1].startswith("engine    stopped")
    finally:
        process.terminate()
        process.wait(20)


def test_the_documents_name_every_scenario_and_option() -> None:
    text = (Path(__file__).parents[3] / "docs" / "dashboard.md").read_text()
    for word in (
        *SCENARIOS,
        "--once",
        "--json",
        "--record",
        "--replay",
        "--readonly",
        "--ascii",
        "--fps",
        "ft status --watch",
    ):
        assert word in text, word
