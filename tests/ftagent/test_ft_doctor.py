"""`ft doctor` finds what is really broken, says why, and its one command really mends it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftagent.checks import run_checks
from ftagent.context import Context
from ftagent.doctor import fixing
from ftagent.doctor.check import Check
from ftagent.doctor.machine import gpu_of
from ftagent.launch.environment import filter_environment
from ftagent.paths import find_paths
from tests.ports import free_port

FT = [sys.executable, "-P", "-m", "ftagent"]
ID = "s-abcdefghij"


def context(sandbox: Any, env: dict[str, str] | None = None) -> Context:
    environment = {**sandbox.env, **(env or {})}
    return Context(find_paths(environment), environment, sandbox.project, False, "never", True)


def look(sandbox: Any, agent: str | None = None, thorough: bool = False, **options: Any) -> dict[str, Check]:
    """The checks by id; of several with one id, the worst."""
    rank = {"FAIL": 0, "WARN": 1, "SKIP": 2, "OK": 3}
    found: dict[str, Check] = {}
    for check in run_checks(context(sandbox, **options), agent, thorough):
        if check.id not in found or rank[check.status] < rank[found[check.id].status]:
            found[check.id] = check
    return found


def mended(sandbox: Any, id_: str, status: str, thorough: bool = False, **options: Any) -> Check:
    """What was found; its command was run as the doctor runs it, and the check is good, or gone, afterwards."""
    check = look(sandbox, thorough=thorough, **options)[id_]
    assert check.status == status and check.fixable and check.cause, check
    told = context(sandbox, **options)
    argv = fixing.argv_of(check, env=told.env)
    assert argv is not None
    assert fixing.run(argv, told.env, told.cwd) == 0, check.fix
    after = look(sandbox, thorough=thorough, **options).get(id_)
    assert after is None or after.status == "OK", after
    return check


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "status"), [("model = \n", "FAIL"), ("colour = 3\n", "WARN")], ids=["broken", "unknown"]
)
def test_settings_that_do_not_parse_or_count_for_nothing(sandbox: Any, text: str, status: str) -> None:
    write(sandbox.ft_home / "config" / "config.toml", text)
    editor = write(sandbox.bin / "mend", '#!/bin/sh\necho "wait = 61" > "$1"\n', 0o755)
    check = mended(sandbox, "settings", status, env={"EDITOR": str(editor)})
    assert check.fix == "ft config edit"


@pytest.mark.parametrize(("mode", "status"), [(0o755, "WARN"), (0o777, "FAIL")], ids=["readable", "writable"])
def test_folders_that_others_may_read_or_write(sandbox: Any, mode: int, status: str) -> None:
    state = sandbox.ft_home / "state"
    state.mkdir()
    state.chmod(mode)
    mended(sandbox, "folders", status)
    assert state.stat().st_mode & 0o022 == 0


@pytest.mark.usefixtures("pulled")
def test_a_folder_that_is_a_link_is_for_the_person(sandbox: Any) -> None:
    (sandbox.root / "elsewhere").mkdir()
    (sandbox.ft_home / "state").symlink_to(sandbox.root / "elsewhere")
    check = look(sandbox)["folders"]
    assert check.status == "FAIL" and check.by_hand and "is a link to" in check.text
    done = sandbox.run("doctor", "--fix", "--yes")
    assert done.returncode == 1 and "For you to do: export FT_HOME=" in done.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere; test_ft_hostile.py mounts it read-only")
def test_a_folder_that_was_made_read_only(sandbox: Any) -> None:
    (sandbox.ft_home / "state").mkdir(mode=0o500)
    mended(sandbox, "folders", "FAIL")


def test_a_token_that_others_may_read(sandbox: Any) -> None:
    file = write(sandbox.ft_home / "state" / "sessions" / ID / "claude.json", "{}", 0o644)
    (sandbox.ft_home / "state").chmod(0o700)
    mended(sandbox, "secrets", "WARN")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_clock_that_went_back(sandbox: Any) -> None:
    file = write(sandbox.ft_home / "state" / "trust.json", "{}")
    assert "clock" not in look(sandbox)
    ahead = time.time() + 40 * 86_400
    os.utime(file, (ahead, ahead))
    check = look(sandbox)["clock"]
    assert check.status == "WARN" and check.by_hand and "40 days in the future" in check.text


def test_a_shell_with_few_open_files(sandbox: Any) -> None:
    assert look(sandbox)["open files"].status == "OK"
    command = f"ulimit -n 100; exec {shlex.join(FT)} doctor --json"
    done = subprocess.run(
        ["sh", "-c", command], env=sandbox.env, cwd=sandbox.project, capture_output=True, text=True, timeout=120
    )
    told = next(check for check in json.loads(done.stdout)["checks"] if check["id"] == "open files")
    assert told["status"] == "WARN" and told["text"] == "100 at most (ulimit -n)" and told["by_hand"]


def test_settings_of_an_administrator(sandbox: Any) -> None:
    """A real file in the real place, in a file system of its own."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace of its own is permitted")
    made = "mount -t tmpfs none /etc && mkdir -p /etc/codex && touch /etc/codex/managed_config.toml"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{made} && exec {shlex.join(FT)} doctor --json"],
        env=sandbox.env,
        cwd=sandbox.project,
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = next(check for check in json.loads(done.stdout)["checks"] if check["id"] == "managed settings")
    assert told["status"] == "WARN" and told["text"] == "/etc/codex/managed_config.toml is there"


def test_a_gpu_driver_that_fails_and_a_card_in_a_narrow_slot(sandbox: Any) -> None:
    """The program is a stand-in; the lines are those of a driver."""
    write(
        sandbox.bin / "nvidia-smi",
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n",
        0o755,
    )
    check = look(sandbox)["gpu"]
    assert check.status == "WARN" and "Driver/library version mismatch" in check.text and check.by_hand
    write(sandbox.bin / "nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 143771, 0, 16, 16'\n", 0o755)
    assert look(sandbox)["gpu"].text == "NVIDIA H200: 0 of 143771 MiB in use, PCIe x16 of x16"
    assert gpu_of("NVIDIA GeForce RTX 5090, 32607, 900, 4, 16").status == "WARN"
    assert gpu_of("NVIDIA GB10, [N/A], [N/A], [N/A], [N/A]").status == "OK"


def test_a_model_that_is_not_here_while_others_are(sandbox: Any) -> None:
    sandbox.model("mine")
    _set(sandbox, "model", "gone")
    check = mended(sandbox, "models", "FAIL")
    assert check.fix == "ft config set model mine"


def _set(sandbox: Any, name: str, value: str | int) -> None:
    write(sandbox.ft_home / "config" / "config.toml", f"{name} = {json.dumps(value)}\n")


@pytest.mark.parametrize("damage", ["short", "gone"])
def test_a_model_whose_files_are_not_whole(sandbox: Any, models_dir: Path, damage: str) -> None:
    """Of a real model, whose manifest knows its sizes."""
    folder = sandbox.ft_home / "data" / "models" / "tiny-hybrid"
    shutil.copytree(models_dir / "tiny-hybrid", folder)
    _set(sandbox, "model", "tiny-hybrid")
    assert look(sandbox)["models"].status == "OK"
    bank = folder / json.loads((folder / "ftw.json").read_text())["banks"][0]["file"]
    if damage == "gone":
        bank.unlink()
    else:
        os.truncate(bank, bank.stat().st_size // 2)
    check = look(sandbox)["models"]
    assert check.status == "FAIL" and bank.name in check.text and check.by_hand
    assert sandbox.run("models", "verify", "tiny-hybrid").returncode == 1, "the engine agrees"


@pytest.mark.slow
def test_the_model_of_the_package_is_made_again(sandbox: Any) -> None:
    """A real pull of 788 MB."""
    write(sandbox.ft_home / "data" / "models" / "smollm2-moe" / "ftw.json", "{")
    check = mended(sandbox, "models", "FAIL")
    assert check.fix == "ft models pull smollm2-moe --force"


def test_a_pull_that_was_interrupted_is_gone_on_with(sandbox: Any, tmp_path: Path) -> None:
    from tests.engine.weights.hub_server import serving
    from tests.engine.weights.test_weights_pull import QWEN3, separate, write_repo

    repo = write_repo(tmp_path / "small", QWEN3, separate(QWEN3), shards=4)
    with serving({"org/small": repo}) as hub:
        sandbox.env["HF_ENDPOINT"] = hub.url
        hub.cut_after, hub.cuts = 1 << 40, 0
        pull = subprocess.Popen(
            [*FT, "models", "pull", "org/small"],
            env=sandbox.env,
            cwd=sandbox.project,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        journal = sandbox.ft_home / "data" / "models" / ".small.pull" / "pull.json"
        sandbox.wait_for(journal, 300)
        os.killpg(pull.pid, signal.SIGKILL)
        pull.communicate()
        if not journal.exists():
            pytest.skip("it was through before it could be killed")
        check = mended(sandbox, "unfinished pull", "WARN")
    assert check.fix.startswith("ft models pull org/small:") and check.fix.endswith("--name small")
    assert sandbox.run("models", "verify", "small").returncode == 0


def test_what_a_killed_pull_left_is_taken_away(sandbox: Any) -> None:
    folder = write(sandbox.ft_home / "data" / "models" / ".gone.pull" / "part.bin", "x").parent
    mended(sandbox, "unfinished pull", "WARN")
    assert not folder.exists()


def test_a_port_that_another_program_has(sandbox: Any) -> None:
    """A variable is the person's own; a setting is changed to a port that is free."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        port = server.getsockname()[1]
        by_hand = look(sandbox, env={"FT_PORT": str(port)})["engine"]
        assert by_hand.status == "FAIL" and by_hand.by_hand and by_hand.fix.startswith("export FT_PORT=")
        assert f"(pid {os.getpid()})" in by_hand.text
        _set(sandbox, "port", port)
        mended(sandbox, "engine", "FAIL", env={"FT_PORT": ""})
    assert int(sandbox.run("config", "get", "port", env={"FT_PORT": ""}).stdout) > port


def test_what_an_engine_left_that_is_gone(sandbox: Any) -> None:
    record = {"pid": 1, "port": free_port(), "nonce": "x", "admin_token": "y"}
    file = write(sandbox.runtime / "engine.json", json.dumps(record))
    sandbox.runtime.chmod(0o700)
    mended(sandbox, "runtime file", "WARN")
    assert not file.exists()


@pytest.mark.usefixtures("pulled")
def test_an_engine_that_has_crashed(sandbox: Any) -> None:
    """With the stand-in for the engine; what crashes a real one is in tests/engine/worker."""
    assert sandbox.run("engine", "start", "--no-wait", fake=True, env={"FAKE_MODE": "crashed"}).returncode == 0
    check = look(sandbox)["engine"]
    assert check.status == "FAIL" and check.fix == "ft engine restart" and "Not enough memory" in check.text


@pytest.mark.slow
def test_an_engine_that_hangs_is_stopped(sandbox: Any, models_dir: Path) -> None:
    """A real one, frozen by a signal. Each look waits ten seconds for it."""
    sandbox.env["FT_MODELS_DIR"] = str(models_dir)
    started = sandbox.run("engine", "start", "-m", "tiny-hybrid", timeout=300)
    assert started.returncode == 0, started.stderr
    pid = json.loads((sandbox.runtime / "engine.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        check = mended(sandbox, "engine", "FAIL")
        assert f"(pid {pid}) does not answer" in check.text and check.fix == "ft engine stop"
    finally:
        for number in (signal.SIGCONT, signal.SIGTERM):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break


def test_a_model_that_does_not_fit_with_these_settings(sandbox: Any, models_dir: Path) -> None:
    """The engine's own plan, and a KV cache that no machine has room for."""
    sandbox.env["FT_MODELS_DIR"] = str(models_dir)
    sandbox.env["FT_MODEL"] = "tiny-hybrid"
    assert look(sandbox, thorough=True)["memory"].status == "OK"
    _set(sandbox, "kv", "4000m")
    check = look(sandbox, thorough=True)["memory"]
    assert check.status == "FAIL" and check.fix.startswith("ft config set kv ") and check.fixable
    tokens = int(check.fix.rpartition(" ")[2])
    assert 0 < tokens < 4000 << 20
    argv = fixing.argv_of(check)
    assert argv is not None and fixing.run(argv, sandbox.env, sandbox.project) == 0
    after = look(sandbox, thorough=True)["memory"]  # others may have taken memory meanwhile; then it is less
    assert after.status == "OK" or int(after.fix.rpartition(" ")[2]) < tokens


def test_a_record_that_cannot_be_read_and_leases_that_were_left(sandbox: Any) -> None:
    folder = write(sandbox.ft_home / "state" / "sessions" / ID / "session.json", "{").parent
    lease = write(sandbox.runtime / "leases" / f"{ID}.json", "{}")
    other = write(sandbox.runtime / "leases" / f"{ID[:-1]}z.json", "{}")  # of another state folder of this user
    for place in (sandbox.ft_home / "state", sandbox.runtime):
        place.chmod(0o700)
    checks = look(sandbox)
    assert checks["leases"].status == checks["sessions"].status == "WARN"
    assert lease.name in checks["leases"].fix and other.name not in checks["leases"].fix
    mended(sandbox, "sessions", "WARN")
    assert not folder.exists() and not lease.exists()


def test_what_a_launch_keeps_is_no_credential_to_the_doctor(sandbox: Any) -> None:
    env = {"AWS_CA_BUNDLE": "/etc/ssl/ca.pem", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": "/etc/ssl/ca.pem"}
    kept = filter_environment(env)
    assert kept.kept == env and not kept.dropped_credentials
    assert "credentials" not in look(sandbox, env=env)
    assert "AWS_SECRET_ACCESS_KEY" in look(sandbox, env={**env, "AWS_SECRET_ACCESS_KEY": "x" * 40})["credentials"].text


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("MZ\x90", 0o755, "is a Windows program"),
        ("#!/nowhere/python\n", 0o755, "is a script for /nowhere/python, which is missing"),
        ("#!/bin/sh\n", 0o644, "is not executable"),
    ],
    ids=["windows", "interpreter", "mode"],
)
def test_an_agent_that_cannot_run(sandbox: Any, content: str, mode: int, words: str) -> None:
    write(sandbox.bin / "pi", content, mode)
    check = look(sandbox)["agent pi"]
    assert check.status == "FAIL" and words in check.text
    assert check.fix == "ft agents install pi --yes" and check.fixable
    write(sandbox.root / "more" / "pi", "#!/bin/sh\n", 0o755)
    passed = look(sandbox, env={"PATH": f"{sandbox.env['PATH']}:{sandbox.root / 'more'}"})["agent pi"]
    assert passed.status == "WARN" and "passed over" in passed.text and passed.by_hand


def test_an_agent_of_another_version_than_was_checked(sandbox: Any) -> None:
    path = sandbox.agent("true", name="claude")
    found = path.stat()
    known = {str(path.resolve()): {"stamp": f"{found.st_size}:{found.st_mtime_ns}", "version": "0.0.1"}}
    write(sandbox.ft_home / "cache" / "agents.json", json.dumps(known))
    check = look(sandbox)["agent claude"]
    assert check.status == "WARN" and "0.0.1: not checked" in check.text
    assert check.fix == "ft agents install claude --yes"


@pytest.mark.usefixtures("pulled")
def test_what_files_of_an_agent_would_do_to_a_launch(sandbox: Any) -> None:
    """The warnings of the dry run of that agent."""
    sandbox.agent("true", name="claude")
    write(sandbox.home / ".claude" / "settings.json", json.dumps({"apiKeyHelper": "/bin/secret-helper"}))
    dry = json.loads(sandbox.run("launch", "claude", "--dry-run", "--json").stdout)
    told = [c.text for c in run_checks(context(sandbox), "claude", thorough=True) if c.id == "plan claude"]
    assert told == [warning["text"] for warning in dry["warnings"]] and any("apiKeyHelper" in text for text in told)


def test_an_agent_without_a_launch(sandbox: Any) -> None:
    (sandbox.ft_home / "state" / "sessions" / ID).mkdir(parents=True)
    sandbox.agent("sleep 60")
    process = subprocess.Popen(
        [str(sandbox.bin / "pi")], env={**sandbox.env, "OPENAI_BASE_URL": f"http://127.0.0.1:1/s/{ID}/v1"}
    )
    try:
        check = look(sandbox)["orphan"]
        assert check.status == "WARN" and check.fix == f"kill {process.pid}" and check.by_hand
    finally:
        process.kill()
        process.wait()
    assert "orphan" not in look(sandbox)


@pytest.mark.usefixtures("pulled")
def test_each_fix_is_asked_for(sandbox: Any) -> None:
    """No to the first, yes to the second; without a terminal nothing is run unless --yes says so."""
    state = sandbox.ft_home / "state"
    state.mkdir()
    state.chmod(0o755)
    leftover = write(sandbox.ft_home / "data" / "models" / ".gone.pull" / "part.bin", "x").parent
    (sandbox.ft_home / "data").chmod(0o700)
    assert sandbox.run("doctor", "--fix").returncode == 2
    assert sandbox.run("doctor", "--yes").returncode == 2
    assert state.stat().st_mode & 0o077 and leftover.exists()
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(sandbox.project)
        os.execve(sys.executable, [*FT, "doctor", "--fix"], sandbox.env)
    output = ""
    for answer in (b"n\n", b"y\n"):
        output = _until(master, output, lambda text: text.endswith("[y/N] "))
        os.write(master, answer)
        output += "\n"
    _until(master, output, lambda text: False)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert state.stat().st_mode & 0o077 and not leftover.exists()


def _until(master: int, output: str, enough: Callable[[str], bool]) -> str:
    while not enough(output):
        try:
            output += os.read(master, 65536).decode(errors="replace")
        except OSError:
            break
    return output


def test_yes_runs_them_all_and_the_document_says_what_is_left(sandbox: Any) -> None:
    write(sandbox.ft_home / "config" / "config.toml", "model = \n")
    leftover = write(sandbox.ft_home / "state" / "sessions" / ID / "session.json", "{").parent
    (sandbox.ft_home / "state").chmod(0o755)
    done = sandbox.run("doctor", "--fix", "--yes", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1, "no editor is set, so the settings stay broken"
    assert {one["exit"] for one in told["fixed"] if one["fix"] == "ft config edit"} == {3}
    assert {one["exit"] for one in told["fixed"] if one["fix"] != "ft config edit"} == {0}
    assert [check["id"] for check in told["checks"] if check["status"] == "FAIL"] == ["settings"]
    assert not leftover.exists() and (sandbox.ft_home / "state").stat().st_mode & 0o777 == 0o700


def test_only_what_ft_may_run_is_given_to_be_run(sandbox: Any) -> None:
    """The entry that the dashboard uses as well."""
    assert fixing.argv_of(Check("a", "FAIL", "x", "ft engine restart"), ("FT",)) == ["FT", "engine", "restart"]
    assert fixing.argv_of(Check("a", "WARN", "x", "chmod 700 '/a b'")) == ["chmod", "700", "/a b"]
    for check in (
        Check("a", "OK", "x", "ft engine restart"),
        Check("a", "SKIP", "x", "ft agents install pi"),
        Check("a", "FAIL", "x", "export FT_HOME=/x", by_hand=True),
        Check("a", "FAIL", "x", "no-such-program-here"),
        Check("a", "FAIL", "x"),
    ):
        assert fixing.argv_of(check) is None, check
    assert fixing.run(["sh", "-c", "kill -9 $$"], sandbox.env, sandbox.project) == 137
    assert fixing.run(["/no/such/program"], sandbox.env, sandbox.project) == 127
