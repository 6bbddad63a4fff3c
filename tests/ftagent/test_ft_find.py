"""The agent's program: which candidate can run, and what its version is."""

import os
from pathlib import Path

import pytest

from ftagent.errors import AgentCannotRun, AgentMissing
from ftagent.launch.find import cached_version, find_executable, in_range, probe_version, version_in
from ftagent.paths import find_paths


def put(folder: Path, name: str, content: bytes, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_case_8_a_broken_first_candidate_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "a", "claude", b"#!/opt/gone/node\n")
    put(tmp_path / "b", "claude", b"#!/usr/bin/env no-such-interpreter\n")
    put(tmp_path / "c", "claude.exe", b"MZ\x90\x00")
    good = put(tmp_path / "d", "claude", b"#!/bin/sh\n")
    found = find_executable(["claude"], os.pathsep.join(str(tmp_path / name) for name in "abcd"))
    assert found.path == good
    reasons = "\n".join(found.skipped)
    assert "a/claude is a script for /opt/gone/node, which is missing" in reasons
    assert "b/claude is a script for no-such-interpreter, which is missing" in reasons
    assert "c/claude.exe is a Windows program" in reasons


def test_nothing_runnable_is_126_and_nothing_at_all_127(tmp_path: Path) -> None:
    put(tmp_path, "claude", b"#!/bin/sh\n", 0o644)
    with pytest.raises(AgentCannotRun, match="is not executable") as cannot:
        find_executable(["claude"], str(tmp_path)).require("Claude Code", "npm install it")
    assert cannot.value.exit_code == 126
    with pytest.raises(AgentMissing) as missing:
        find_executable(["codex"], str(tmp_path)).require("Codex", "npm install it")
    assert missing.value.exit_code == 127
    assert "npm install it" in missing.value.hint


def test_env_with_options_and_assignments(tmp_path: Path) -> None:
    put(tmp_path, "x", b"#!/usr/bin/env -S A=1 sh -e\n")
    assert find_executable(["x"], f"{tmp_path}:/bin").path == tmp_path / "x"


def test_the_version_is_cached_for_this_very_file(tmp_path: Path) -> None:
    paths = find_paths({"FT_HOME": str(tmp_path / "ft"), "HOME": str(tmp_path)})
    program = put(tmp_path / "bin", "pi", b'#!/bin/sh\necho run >> "$COUNT"\necho "pi v0.73.1 (build 9)"\n')
    env = {"COUNT": str(tmp_path / "count"), "PATH": "/bin:/usr/bin"}
    assert cached_version(program, paths) is None
    assert probe_version(program, ["--version"], env, paths) == "0.73.1"
    assert probe_version(program, ["--version"], env, paths) == "0.73.1"
    assert cached_version(program, paths) == "0.73.1"
    assert (tmp_path / "count").read_text() == "run\n"
    os.utime(program, ns=(1, 1))
    assert cached_version(program, paths) is None


def test_asking_for_the_version_leaves_no_folder_of_a_session(tmp_path: Path) -> None:
    paths = find_paths({"FT_HOME": str(tmp_path / "ft"), "HOME": str(tmp_path)})
    program = put(tmp_path / "bin", "opencode", b'#!/bin/sh\nmkdir -p "$XDG_DATA_HOME/opencode" && echo 1.18.33\n')
    unmade = tmp_path / "sessions" / "s-0000000000"
    env = {"XDG_DATA_HOME": str(unmade / "opencode" / "data"), "PATH": "/bin:/usr/bin"}
    assert probe_version(program, ["--version"], env, paths, unmade) == "1.18.33"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "ft"]


def test_a_program_that_does_not_tell_has_no_version(tmp_path: Path) -> None:
    paths = find_paths({"FT_HOME": str(tmp_path / "ft"), "HOME": str(tmp_path)})
    program = put(tmp_path, "pi", b"#!/bin/sh\necho 1.2.3\nexit 1\n")
    assert probe_version(program, ["--version"], {}, paths) is None


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("2.1.332", ">=2.1.300, <2.2", True),
        ("2.2.0", ">=2.1.300, <2.2", False),
        ("2.1.299", ">=2.1.300, <2.2", False),
        ("2.1.300-beta.1", ">=2.1.300", True),
        ("0.171", "==0.171.0", True),
        ("10.0", ">9.9", True),
    ],
)
def test_ranges(version: str, wanted: str, inside: bool) -> None:
    assert in_range(version, wanted) is inside


def test_version_in_text() -> None:
    assert version_in("codex-cli 0.171.0") == "0.171.0"
    assert version_in("2.1.332 (Claude Code)") == "2.1.332"
    assert version_in("nothing here") is None


def test_a_program_given_by_its_path_is_looked_for_there_alone(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    found = find_executable([str(program)], "/usr/bin:/bin")
    assert found.path is None and found.skipped == [f"{program} is not executable"]
