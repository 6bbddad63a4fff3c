"""One table of engine options: the same flags everywhere, the engine's own names, values and limits, and what a running engine
does not follow."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.memory.amounts import parse_bytes as engine_bytes
from engine.settings import OPTIONS as ENGINE_TABLE
from ftagent.settings.config import ENGINE_OPTIONS
from ftagent.settings.values import parse_bytes

SERVE_ONLY = {
    "model",
    "models_dir",
    "runtime_dir",
    "host",
    "log",
    "profiles_dir",
    "hibernate_dir",
    "hibernate_bytes",
    "record_dir",
    "throttle_tokens_per_s",
    "max_requests",
    "upstream_elsewhere",
    "upstream",
}
TEXTS = (
    "0",
    "1",
    "-1",
    "64k",
    "255",
    "256",
    "257",
    "1.5",
    "1.5g",
    "2GiB",
    "8g",
    "auto",
    "off",
    "bf16",
    "f32",
    "x",
    "99999",
)


def test_the_table_is_the_engines() -> None:
    """Same names, same implied values; no value passes here that the engine refuses."""
    theirs = {option.name: option for option in ENGINE_TABLE if option.name not in SERVE_ONLY}
    assert set(theirs) == {option.name for option in ENGINE_OPTIONS}
    for option in ENGINE_OPTIONS:
        implied = option.default if option.default is not None else option.implied
        assert implied == theirs[option.name].default, option.name
        for text in TEXTS:
            try:
                value = option.parse(text)
            except ValueError:
                continue
            assert theirs[option.name].parse(str(value)) == value, (option.name, text)


@pytest.mark.parametrize("text", ["4096", "512k", "3m", "8g", "1.5G", "2 GiB", "500MB"])
def test_sizes_are_read_alike(text: str) -> None:
    assert parse_bytes(text) == engine_bytes(text) > 0


@pytest.mark.parametrize("command", [["serve"], ["engine", "start"], ["engine", "restart"], ["engine", "plan"]])
def test_every_help_lists_every_option(command: list[str], sandbox) -> None:
    said = sandbox.run(*command, "--help").stdout
    assert not [option.flag for option in ENGINE_OPTIONS if option.flag + " " not in said]


@pytest.mark.parametrize("action", ["start", "restart"])
def test_a_dry_run_shows_the_flags_and_refuses_what_serve_refuses(action: str, sandbox) -> None:
    sandbox.model()
    flags = ["--host-memory", "1.5g", "--device", "cpu", "--activations", "f32"]
    said = sandbox.run("engine", action, "--dry-run", *flags, fake=True).stdout
    assert "--host-memory 1610612736 --device cpu --activations f32" in said
    for flag, value in (("--host-memory", "0"), ("--device", "gpu"), ("--kv", "12"), ("--threads", "300")):
        wrong = sandbox.run("engine", action, "--dry-run", flag, value, fake=True)
        assert wrong.returncode == 2, (flag, value)
        assert flag in wrong.stderr and "parse_" not in wrong.stderr


def test_what_a_running_engine_does_not_follow_is_said(sandbox) -> None:
    sandbox.model()
    assert sandbox.run("engine", "start", "-q", "--kv", "16k", fake=True).returncode == 0
    flags = ["--host-memory", "1m", "--moe-backend", "offload", "--kv", "16k"]
    for more in ([], ["--dry-run"], ["--json"]):
        done = sandbox.run("engine", "start", *flags, *more, fake=True)
        assert done.returncode == 0
        assert "without --moe-backend offload (it has auto), --host-memory 1048576 (it has none)." in done.stderr
        assert "ft engine restart --kv 16384 --moe-backend offload --host-memory 1048576" in done.stderr
    same = sandbox.run("engine", "start", "--kv", "16384", "--moe-backend", "auto", fake=True)
    assert "without" not in same.stderr
    assert sandbox.run("engine", "restart", "-q", *flags, fake=True).returncode == 0
    assert "without" not in sandbox.run("engine", "start", *flags, fake=True).stderr


@pytest.mark.parametrize("flags", [[], ["--no-wait"]])
def test_ctrl_c_while_it_starts_ends_what_was_started(flags: list[str], sandbox) -> None:
    sandbox.model()
    if flags:  # of another command: it goes on
        assert sandbox.run("engine", "start", *flags, fake=True, env={"FAKE_LOADING_S": "60"}).returncode == 0
    process = sandbox.start("engine", "start", env={"FAKE_LOADING_S": "60"})
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any("reading weights" in line for line in lines)
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait(20) == 130
    assert "Stopped." in said
    running = sandbox.run("engine", "status").returncode == 0
    assert running == bool(flags)
    assert ("goes on starting" if flags else "engine stopped") in said


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["models", "synth"], ["--like", "--layers", "--format", "--dense-format", "--vocab"]),
        (["models", "fit"], ["--memory"]),
        (["models", "import"], ["--list", "--force"]),
        (["models", "pull"], ["--format", "--force"]),
        (["models", "convert"], ["--dense-format"]),
        (["bench", "prefix"], ["--only", "--rate"]),
    ],
)
def test_help_of_a_subcommand_shows_its_own_flags(command: list[str], flags: list[str], sandbox) -> None:
    done = sandbox.run(*command, "--help", env={"PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.returncode == 0, done.stderr
    assert not [flag for flag in flags if flag not in done.stdout]
    assert not (sandbox.ft_home / "data").exists()


def test_ctrl_c_in_a_benchmark_is_said(tmp_path: Path) -> None:
    """The terminal sends it to the whole group."""
    command = [sys.executable, "-P", "-m", "engine", "bench", "prefix"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path
    )
    assert process.stdout is not None
    assert "prefix.rate" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130
    assert said == "Stopped.\n"


def test_a_benchmark_names_itself_as_it_is_called() -> None:
    command = [sys.executable, "-P", "-m", "engine", "bench", "experts", "--nope"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ft bench experts ")


def test_status_shows_the_last_fault(sandbox) -> None:
    sandbox.model()
    assert sandbox.run("engine", "start", "-q", fake=True, env={"FAKE_MODE": "damaged"}).returncode == 0
    report = json.loads(sandbox.run("engine", "status", "--json").stdout)
    assert report["state"] == "ready"
    assert report["fault"] == "bank-3.bin: expert 7 is damaged."
    for command in (["engine", "status"], ["status"]):
        assert "bank-3.bin: expert 7 is damaged." in sandbox.run(*command).stdout
