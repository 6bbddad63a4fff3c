"""The command line: help, versions, unknown words, and the form of errors."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftagent import __version__
from ftagent.commandline import index
from ftagent.errors import explain_os_error

HEAVY = {"torch", "numpy", "fastapi", "textual", "httpx", "engine", "rich", "pydantic", "asyncio"}


@pytest.mark.parametrize("arguments", [["--help"], ["help", "all"], ["-V"], ["launch", "--help"], ["status"]])
def test_nothing_heavy_is_imported(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ftagent.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    env = {"HOME": str(tmp_path), "FT_HOME": str(tmp_path / "ft"), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = set(eval(done.stderr.splitlines()[-1]))
    assert "ftagent" in loaded
    assert not loaded & HEAVY


def test_help_is_quick(sandbox) -> None:
    """The best of five, in processor time of the child, because other work may share the machine."""
    times = []
    for _ in range(5):
        before = os.times()
        assert sandbox.run("--help").returncode == 0
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.15


def test_every_command_is_listed_with_its_own_words(sandbox) -> None:
    listed = sandbox.run("help", "all").stdout
    for name in index.names():
        line = index.help_line(name)
        assert line, name
        assert any(row.split()[:1] == [name] and line in row for row in listed.splitlines())
    assert set(index.FIRST) <= set(index.names())


@pytest.mark.parametrize("name", index.names())
def test_every_command_explains_itself(name: str, sandbox) -> None:
    done = sandbox.run(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: ft {name}")
    assert sandbox.run("help", name).stdout == done.stdout


def test_exit_codes_of_words(sandbox) -> None:
    done = sandbox.run("lanch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean: ft launch" in done.stderr
    assert sandbox.run().returncode == 2
    assert sandbox.run("--nonsense").returncode == 2
    assert sandbox.run("status", "--nonsense").returncode == 2
    version = sandbox.run("-V")
    assert (version.returncode, version.stdout) == (0, f"ft {__version__}\n")
    assert json.loads(sandbox.run("version", "--json").stdout)["ft"] == __version__


def test_flags_of_the_engine_are_known_before_anything_is_made(sandbox) -> None:
    for more in ([], ["--plan"]):
        done = sandbox.run("serve", *more, "--nonsense")
        assert done.returncode == 2 and "--nonsense" in done.stderr, done.stderr
    assert not (sandbox.ft_home / "data").exists()
    assert sandbox.run("serve", "--record-dir", "/nowhere", "-m", "nosuch").returncode == 3


def test_unknown_agent_names_the_nearest(sandbox) -> None:
    done = sandbox.run("launch", "cluade", "--dry-run")
    assert done.returncode == 2
    assert "ft launch claude" in done.stderr


def test_errors_as_json(sandbox) -> None:
    (sandbox.ft_home / "config").mkdir()
    (sandbox.ft_home / "config" / "config.toml").write_text("model = \n")
    done = sandbox.run("config", "show", "--json")
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "FT-E0412 config-unparseable"
    assert "config.toml:1" in error["message"]
    assert error["fix"]
    plain = sandbox.run("config", "show")
    assert plain.returncode == 4
    assert "Traceback" not in plain.stderr
    assert "Traceback" in sandbox.run("--debug", "config", "show").stderr


def test_a_usage_error_in_json(sandbox) -> None:
    done = sandbox.run("status", "--json", "--nonsense")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"].startswith("FT-E0200")


def test_stopped_engine_is_exit_3_where_it_is_asked_for(sandbox) -> None:
    assert sandbox.run("engine", "status").returncode == 3
    assert json.loads(sandbox.run("engine", "status", "--json").stdout)["state"] == "stopped"
    assert sandbox.run("ctl", "stats").returncode == 3
    assert sandbox.run("engine", "stop").returncode == 0
    status = sandbox.run("status", "--json")
    assert status.returncode == 3
    assert json.loads(status.stdout)["engine"]["state"] == "stopped"


def test_colour_variables(sandbox) -> None:
    assert "\x1b" not in sandbox.run("launch", "pi", "--dry-run").stdout
    assert "\x1b" in sandbox.run("launch", "pi", "--dry-run", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in sandbox.run("launch", "pi", "--dry-run", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout
    assert "\x1b" in sandbox.run("--color", "always", "launch", "pi", "--dry-run", env={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in sandbox.run("launch", "pi", "--dry-run", "--no-color", env={"FORCE_COLOR": "1"}).stdout


@pytest.mark.parametrize("arguments", [["help", "all"], ["launch", "--help"], ["config", "show", "--json"]])
def test_a_pipe_that_nobody_reads_is_quiet(arguments: list[str], sandbox) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-P", "-m", "ftagent", *arguments]
    done = subprocess.run(command, env=sandbox.env, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str, sandbox) -> None:
    command = f"{sys.executable} -P -m ftagent launch pi --dry-run {closed}"
    done = subprocess.run(["sh", "-c", command], env=sandbox.env, cwd=sandbox.project, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments", [["ls", "--json"], ["help", "all"], ["config", "show"], ["launch", "pi", "--dry-run"]]
)
def test_output_that_does_not_fit_is_said_once(arguments: list[str], sandbox) -> None:
    command = [sys.executable, "-P", "-m", "ftagent", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, env=sandbox.env, cwd=sandbox.project, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "ft: The output could not be written: No space left on device.\n    Send it somewhere else.\n"


def test_failures_of_the_system_are_sentences(sandbox) -> None:
    (sandbox.ft_home / "cache").mkdir(parents=True, exist_ok=True)
    (sandbox.ft_home / "runtime").mkdir()
    (sandbox.ft_home / "runtime" / "start.lock").mkdir()
    sandbox.model()
    done = sandbox.run("engine", "start", "-q")
    assert done.returncode == 1
    assert done.stderr.startswith(f"ft: {sandbox.runtime / 'start.lock'}: Is a directory.")
    message, hint = explain_os_error(OSError(errno.EROFS, os.strerror(errno.EROFS), "/run/ft/start.lock"))
    assert message == "/run/ft/start.lock: Read-only file system." and "FT_HOME" in hint


def test_doctor_without_settings_leaves_no_row_out(sandbox) -> None:
    (sandbox.ft_home / "config").mkdir()
    (sandbox.ft_home / "config" / "config.toml").write_text("model = \n")
    rows = {check["id"]: check["status"] for check in json.loads(sandbox.run("doctor", "--json").stdout)["checks"]}
    assert (rows["settings"], rows["models"], rows["engine"]) == ("FAIL", "SKIP", "SKIP")


def test_models_speak_as_ft_and_on_one_stream(sandbox) -> None:
    done = sandbox.run("models", "pull", "nosuch")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("ft: There is no model 'nosuch' to pull.\n    Known: smollm2-moe.")
    done = sandbox.run("models", "show")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ft: ft models show: the following arguments are required: name.\n")
    done = sandbox.run("models", "verify", "nosuch", "--json")
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout)["error"]["code"] == "FT-E0404 not-found"


def test_doctor_reports_and_changes_nothing(sandbox) -> None:
    before = sandbox.tree()
    done = sandbox.run("doctor", "--json")
    assert done.returncode == 0
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["agent pi"]["status"] == "SKIP"
    assert checks["agent mini"]["status"] == "OK"
    assert checks["models"]["status"] == "WARN"
    assert sandbox.tree() == before
    assert sandbox.run("doctor", "--agent", "pi").returncode == 1
    assert sandbox.run("doctor", "--strict").returncode == 1


def test_a_file_that_breaks_off_is_named_with_its_last_line(sandbox) -> None:
    (sandbox.ft_home / "config").mkdir()
    (sandbox.ft_home / "config" / "config.toml").write_text('[engine]\nmodel = "x\n')
    assert "config.toml:2" in sandbox.run("config", "show").stderr
    (sandbox.ft_home / "config" / "config.toml").write_text("[engine]\nvalues = [1,")
    assert "config.toml:2" in sandbox.run("config", "show").stderr
