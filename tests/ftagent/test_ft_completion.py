"""Completion in the real shells, and what is made from the same model: the manual page and docs/commands.md."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftagent.commandline import completion, index
from ftagent.commandline.docs import markdown, roff
from ftagent.commandline.model import commands, flatten

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        (folder / shell).write_text(completion.script(shell))
    return folder


@pytest.fixture
def with_ft(sandbox):
    """`ft` on PATH, with two sessions and two models."""
    program = sandbox.bin / "ft"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ftagent "$@"\n')
    program.chmod(0o755)
    for number, name in enumerate(["claude", "a:b c"]):
        folder = sandbox.ft_home / "state" / "sessions" / f"s-aaaaaaaaa{'ab'[number]}"
        folder.mkdir(parents=True)
        record = {"name": name, "agent": {"name": "claude"}, "project": {"root": "/p"}, "created": f"{number}"}
        (folder / "session.json").write_text(json.dumps(record))
    sandbox.model("alpha")
    sandbox.model("beta")
    return sandbox


def bash(sandbox, scripts: Path, line: str) -> list[str]:
    """What Tab offers at the end of the line, in a real bash that split the line itself as readline does."""
    words = line.split(" ")
    split = [part for word in words for part in (word.replace(":", " : ").split() or [""])]
    if line.endswith(":"):
        split.append("")
    code = (
        f"source {scripts / 'bash'}\nCOMP_WORDS=({' '.join(map(shlex.quote, split))})\nCOMP_CWORD={len(split) - 1}\n"
        f"COMP_LINE={shlex.quote(line)}\nCOMP_POINT={len(line)}\n_ft ft\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], env=sandbox.env, cwd=sandbox.project, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash(with_ft, scripts) -> None:
    assert "launch" in bash(with_ft, scripts, "ft ")
    assert bash(with_ft, scripts, "ft lau") == ["launch"]
    assert set(bash(with_ft, scripts, "ft engine st")) == {"start", "stop", "status"}
    assert bash(with_ft, scripts, "ft engine start --no-w") == ["--no-wait"]
    assert bash(with_ft, scripts, "ft launch cl") == ["claude"]
    assert bash(with_ft, scripts, "ft launch claude --model a") == ["alpha"]
    assert bash(with_ft, scripts, "ft launch claude --model alpha --dry") == ["--dry-run"]
    assert bash(with_ft, scripts, "ft --color never config val") == ["validate"]
    assert set(bash(with_ft, scripts, "ft launch claude --print-env ")) == {"sh", "fish", "json"}
    assert set(bash(with_ft, scripts, "ft sessions show ")) == {"a:b\\ c", "claude"}
    assert bash(with_ft, scripts, "ft sessions show a:") == ["b\\ c"]
    assert bash(with_ft, scripts, "ft config set anti") == ["anticipate"]
    assert bash(with_ft, scripts, "ft models verify be") == ["beta"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh(with_ft, scripts) -> None:
    """Without a terminal nothing is drawn: the functions that offer are replaced by ones that print."""

    def offered(*words: str) -> list[str]:
        code = (
            f"compdef() {{ : }}\nsource {scripts / 'zsh'}\n"
            "_describe() { print -rl -- ${(P)@[-1]} }\ncompadd() { shift; print -rl -- $@ }\n_files() { print FILES }\n"
            f"words=({' '.join(map(shlex.quote, words))})\nCURRENT={len(words)}\n_ft"
        )
        done = subprocess.run(
            ["zsh", "-f", "-c", code], env=with_ft.env, cwd=with_ft.project, capture_output=True, text=True
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert any(line.startswith("launch:Run a coding agent") for line in offered("ft", ""))
    assert any(line.startswith("start:start it") for line in offered("ft", "engine", ""))
    assert any(line.startswith("--no-wait") for line in offered("ft", "engine", "start", "--"))
    assert "a\\:b c:claude /p" in offered("ft", "sessions", "show", "")
    assert [line.split(":")[0] for line in offered("ft", "launch", "claude", "-m", "")] == ["alpha", "beta"]
    assert offered("ft", "launch", "claude", "--script", "") == ["FILES"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish(with_ft, scripts) -> None:
    def offered(line: str) -> dict[str, str]:
        code = f"source {scripts / 'fish'}; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], env=with_ft.env, cwd=with_ft.project, capture_output=True, text=True
        )
        assert done.stderr == ""
        return dict((*row.split("\t"), "")[:2] for row in done.stdout.splitlines())

    assert offered("ft lau") == {"launch": index.help_line("launch")}
    assert set(offered("ft engine st")) == {"start", "stop", "status"}
    assert set(offered("ft engine start --no-w")) == {"--no-wait"}
    assert set(offered("ft launch claude --model ")) == {"alpha", "beta"}
    assert "a:b c" in offered("ft sessions show ")


def test_values_are_kept_and_nothing_is_started(with_ft) -> None:
    """In processor time, beside a start of Python that does nothing: the best of three each."""

    def cost(command: list[str]) -> float:
        times = []
        for _ in range(3):
            before = os.times()
            subprocess.run(command, env=with_ft.env, cwd=with_ft.project, capture_output=True, check=True)
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(times)

    call = [sys.executable, "-P", "-m", "ftagent", "completion", "--values", "sessions"]
    first = subprocess.run(
        call, env=with_ft.env, cwd=with_ft.project, capture_output=True, text=True, check=True
    ).stdout
    assert first == "a:b c\tclaude /p\nclaude\tclaude /p\n"
    assert cost(call) - cost([sys.executable, "-P", "-c", ""]) < 0.15
    assert not with_ft.runtime.exists()
    time.sleep(0.01)
    folder = with_ft.ft_home / "state" / "sessions" / "s-aaaaaaaaac"
    folder.mkdir()
    (folder / "session.json").write_text('{"name": "third", "created": "9"}')
    assert subprocess.run(call, env=with_ft.env, capture_output=True, text=True).stdout.startswith("third\t")


def test_every_option_is_explained() -> None:
    for model in flatten(commands()):
        assert model.help, model.path
        for option in model.options:
            assert option.help, f"ft {model.path} {option.words}"
        for name, _, about in model.values:
            assert about, f"ft {model.path} {name}"


def test_the_documents_are_those_of_the_program() -> None:
    """Write anew: ft man --markdown > docs/commands.md"""
    assert (ROOT / "docs" / "commands.md").read_text() == markdown()


@pytest.mark.skipif(shutil.which("man") is None, reason="no man")
def test_the_manual_page_is_one(tmp_path) -> None:
    page = tmp_path / "ft.1"
    page.write_text(roff())
    done = subprocess.run(
        ["man", "--warnings", "-l", str(page)],
        capture_output=True,
        text=True,
        env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in index.names():
        assert f"ft {name}" in done.stdout
    assert "EXIT STATUS" in done.stdout
