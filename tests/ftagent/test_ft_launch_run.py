"""A launch against the stand-in front, with agents of a few lines: exit codes, signals, files, receipts."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftagent.launch import run
from ftagent.processes import is_alive

FAKE_FT = [sys.executable, "-P", str(Path(__file__).with_name("fake_ft.py"))]

pytestmark = pytest.mark.usefixtures("pulled")


def session_of(sandbox) -> dict:
    (file,) = (sandbox.ft_home / "state" / "sessions").glob("*/session.json")
    return json.loads(file.read_text())


@pytest.mark.parametrize("code", [0, 1, 7, 125])
def test_the_exit_code_is_the_agents(code: int, sandbox) -> None:
    sandbox.agent(f"exit {code}")
    done = sandbox.run("launch", "pi", fake=True)
    assert done.returncode == code, done.stderr
    assert session_of(sandbox)["runs"][0]["exit"] == code


def test_killed_by_a_signal_is_128_plus_n(sandbox) -> None:
    sandbox.agent("kill -KILL $$")
    assert sandbox.run("launch", "pi", fake=True).returncode == 137


def test_stdout_is_the_agents_and_stdin_reaches_it(sandbox) -> None:
    sandbox.agent('cat; echo " from pi"')
    done = sandbox.run("launch", "pi", "-q", "--", "-p", "x", fake=True, input="hello")
    assert done.stdout == "hello from pi\n"
    assert done.stderr == ""


def test_the_agent_gets_its_place_and_no_credentials(sandbox) -> None:
    sandbox.agent('env > seen; printf "%s\\n" "$@" > args; pwd > where')
    below = sandbox.project / "below"
    below.mkdir()
    env = {"MY_OPENAI_API_KEY": "sk", "AWS_PROFILE": "work", "PYTHONPATH": ".", "EDITOR": "vi", "GH_TOKEN": "g"}
    done = sandbox.run("launch", "pi", "--keep-env", "GH_TOKEN", "--", "-p", "a b", fake=True, env=env, cwd=below)
    assert done.returncode == 0, done.stderr
    seen = dict(line.split("=", 1) for line in (below / "seen").read_text().splitlines() if "=" in line)
    assert not {"MY_OPENAI_API_KEY", "AWS_PROFILE"} & set(seen)
    assert (seen["PYTHONPATH"], seen["EDITOR"], seen["GH_TOKEN"]) == (".", "vi", "g")
    assert (below / "args").read_text().splitlines()[-2:] == ["-p", "a b"]
    assert (below / "where").read_text().strip() == str(below)
    registered = json.loads((sandbox.runtime / "registered.json").read_text())
    assert registered["harness"] == "pi"
    assert "launch" not in registered["declaration"]
    assert registered["project"] == str(sandbox.project)


def test_files_and_records_are_private_and_complete(sandbox) -> None:
    sandbox.agent("exit 0")
    assert sandbox.run("launch", "pi", "-n", "first", fake=True).returncode == 0
    state = sandbox.ft_home / "state"
    for path in state.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert path.is_symlink() or mode == (0o700 if path.is_dir() else 0o600), path
    record = session_of(sandbox)
    assert record["schema"] == "ft.session/1"
    assert record["name"] == "first"
    assert record["agent"]["version"] == "0.73.1"
    assert record["model"] == {"id": "smollm2-moe", "ctx": 65536, "max_output": 8192}
    assert record["project"]["root"] == str(sandbox.project)
    assert "ft_sess_" not in json.dumps(record)
    assert list((sandbox.runtime / "leases").iterdir()) == []


def test_the_receipt_says_what_was_served(sandbox) -> None:
    sandbox.agent("exit 0")
    done = sandbox.run("launch", "pi", fake=True)
    last = done.stderr.splitlines()[-2:]
    assert "prompt 200 tokens, cached 120 (60 %), output 10, TTFT median 0.25 s, longest 0.25 s (n=2)" in last[0]
    assert last[1] == "ft: 2 requests served here"
    assert "toy quality" in done.stderr


def test_launch_events_as_json_on_stderr(sandbox) -> None:
    sandbox.agent("echo out")
    done = sandbox.run("launch", "pi", "--json", fake=True)
    assert done.stdout == "out\n"
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"launching", "ended", "warning"} <= {event["event"] for event in events}
    assert events[-1]["receipt"]["requests"] == 2


def sessions_of(sandbox) -> list:
    return json.loads(sandbox.run("ls", "--json").stdout)["sessions"]


def engine_sessions(sandbox) -> list:
    from ftagent.local_engine.running import find_engine
    from ftagent.paths import find_paths

    return find_engine(find_paths(sandbox.env)).client.get("/v1/sessions")["sessions"]


def test_an_ended_session_leaves_no_token_anywhere(sandbox) -> None:
    sandbox.agent("grep -rq ft_sess_ ../ft/state/sessions/*/ && exit 3")
    assert sandbox.run("launch", "claude", "--no-exec", "-q", fake=True).returncode == 0
    (prepared,) = engine_sessions(sandbox)
    assert sandbox.run("launch", "pi", fake=True).returncode == 3
    assert [session["id"] for session in engine_sessions(sandbox)] == [prepared["id"]]
    state = sandbox.ft_home / "state" / "sessions"
    ended = next(s for s in sessions_of(sandbox) if s["agent"]["name"] == "pi")
    assert ended["stats"]["requests"] == 2
    assert ended["engine"]["id"] == ended["id"]
    held = [path for path in (state / ended["id"]).rglob("*") if path.is_file() and "ft_sess_" in path.read_text()]
    assert held == []
    explained = json.loads(sandbox.run("ctl", "explain", ended["id"], "--json").stdout)
    assert (explained["session"]["name"], explained["turns"]) == ("pi", [])
    (sandbox.bin / "pi").write_bytes(b"\x00\x01 not a program")
    assert sandbox.run("launch", "pi", fake=True).returncode == 126
    assert [session["id"] for session in engine_sessions(sandbox)] == [prepared["id"]]


def test_an_id_that_is_no_id_names_no_folder(sandbox) -> None:
    sandbox.agent("touch started")
    before = sorted(sandbox.root.parent.iterdir())
    done = sandbox.run("launch", "pi", fake=True, env={"FAKE_MODE": "hostile"})
    assert done.returncode == 125
    assert "no usable id" in done.stderr
    assert not (sandbox.project / "started").exists()
    assert sorted(sandbox.root.parent.iterdir()) == before
    assert not list(sandbox.root.rglob("escaped"))


def test_a_full_disk_is_said_and_leaves_nothing(sandbox) -> None:
    sandbox.agent("touch started")
    assert sandbox.run("engine", "start", "-q", fake=True).returncode == 0
    assert sandbox.run("launch", "pi", "-q", fake=True).returncode == 0  # its version is known now
    done = sandbox.run("launch", "pi", fake=True, env={"FAKE_FULL_DISK": "1"})
    assert done.returncode == 125
    assert "The disk is full" in done.stderr and "OSError" not in done.stderr
    assert [session["status"] for session in sessions_of(sandbox)] == ["ended"]
    assert engine_sessions(sandbox) == []


def test_what_fails_after_the_agent_leaves_its_exit_code(sandbox) -> None:
    """The record can no longer be written: its folder has become a file."""
    sandbox.agent('cd ../ft/state/sessions && for d in s-*; do rm -r "$d"; touch "$d"; done; exit 7')
    assert sandbox.run("launch", "pi", "-q", fake=True).returncode == 7
    assert engine_sessions(sandbox) == []


def test_a_folder_whose_name_is_not_utf_8_is_refused_before_anything(sandbox) -> None:
    sandbox.agent("touch started")
    folder = os.fsencode(sandbox.project) + b"/\xff\xfe bad"
    os.mkdir(folder)
    for arguments in (["--no-exec"], ["--dry-run", "--json"], ["-C", folder]):
        cwd = folder if arguments[0] != "-C" else sandbox.project
        done = subprocess.run(
            [*FAKE_FT, "launch", "pi", *arguments], env=sandbox.env, cwd=cwd, capture_output=True, check=False
        )
        said = (done.stdout + done.stderr).decode()  # valid UTF-8
        assert done.returncode == 4, said
        assert "not valid UTF-8" in said and "Traceback" not in said
    assert not (sandbox.runtime / "starts").exists()
    done = subprocess.run(
        [*FAKE_FT, "launch", "pi", "--dry-run", "--json", "--", b"\xff"],
        env=sandbox.env,
        cwd=sandbox.project,
        capture_output=True,
        check=True,
    )
    assert os.fsencode(json.loads(done.stdout.decode())["argv"][-1]) == b"\xff"


def test_names_are_unique_in_a_project(sandbox) -> None:
    sandbox.agent("exit 0")
    for _ in range(2):
        assert sandbox.run("launch", "pi", "-q", fake=True).returncode == 0
    listed = json.loads(sandbox.run("ls", "--json").stdout)["sessions"]
    assert {session["name"] for session in listed} == {"pi", "pi-2"}
    assert {session["status"] for session in listed} == {"ended"}
    assert sandbox.run("launch", "pi", "-n", "pi", fake=True).returncode == 6
    shown = json.loads(sandbox.run("sessions", "show", listed[0]["id"][:7], "--json").stdout)
    assert shown["id"] == listed[0]["id"]
    assert sandbox.run("sessions", "show", "nobody").returncode == 3


def test_an_unreadable_record_hides_nothing(sandbox) -> None:
    sandbox.agent("exit 0")
    assert sandbox.run("launch", "pi", "-q", fake=True).returncode == 0
    broken = sandbox.ft_home / "state" / "sessions" / "s-broken0000"
    broken.mkdir()
    (broken / "session.json").write_text("{")
    statuses = {s["id"]: s["status"] for s in json.loads(sandbox.run("ls", "--json").stdout)["sessions"]}
    assert statuses["s-broken0000"] == "unreadable"
    assert "ended" in statuses.values()


def test_case_7_configure_only(sandbox) -> None:
    sandbox.agent("touch started")
    done = sandbox.run("launch", "pi", "--no-exec", fake=True)
    assert done.returncode == 0, done.stderr
    assert not (sandbox.project / "started").exists()
    assert session_of(sandbox)["runs"] == []
    printed = sandbox.run("launch", "claude", "--print-env", fake=True)
    assert "export ANTHROPIC_AUTH_TOKEN=ft_sess_" in printed.stdout
    assert "****" not in printed.stdout


def test_absent_and_unusable_agents(sandbox) -> None:
    done = sandbox.run("launch", "pi", fake=True)
    assert done.returncode == 127
    assert "npm install" in done.stderr
    assert not (sandbox.runtime / "starts").exists()
    sandbox.agent("exit 0").chmod(0o644)
    assert sandbox.run("launch", "pi", fake=True).returncode == 126
    (sandbox.bin / "pi").write_bytes(b"\x00\x01 not a program")
    (sandbox.bin / "pi").chmod(0o755)
    done = sandbox.run("launch", "pi", fake=True)
    assert done.returncode == 126
    assert "Exec format error" in done.stderr


def test_a_refused_session_is_125(sandbox) -> None:
    sandbox.agent("exit 0")
    assert sandbox.run("engine", "start", "-q", fake=True).returncode == 0
    record = sandbox.runtime / "engine.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "admin_token": "wrong"}))
    assert sandbox.run("launch", "pi", fake=True).returncode == 125


def test_the_script_is_registered(sandbox) -> None:
    sandbox.agent("exit 0")
    script = {"turns": [{"blocks": [{"text": "hi"}]}]}
    (sandbox.project / "s.json").write_text(json.dumps(script))
    done = sandbox.run("launch", "pi", "--script", "s.json", fake=True)
    assert json.loads((sandbox.runtime / "registered.json").read_text())["script"] == script
    assert "scripted replay" in done.stderr
    assert session_of(sandbox)["scripted"] is True


def test_terminated_is_forwarded_and_143(sandbox) -> None:
    sandbox.agent('echo $$ > pid; trap "touch got-term; exit 9" USR1; while :; do sleep 0.05; done')
    process = sandbox.start("launch", "pi")
    sandbox.wait_for(sandbox.project / "pid")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == 143


def test_a_signal_while_the_agent_is_being_started_reaches_it(tmp_path, monkeypatch) -> None:
    """The window between the child's start and our knowing its pid."""
    started = run._start

    def start_and_be_terminated(*arguments: object) -> object:
        process = started(*arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(run, "_start", start_and_be_terminated)
    before = signal.getsignal(signal.SIGTERM)
    assert run.run_agent([sys.executable, "-c", "import time; time.sleep(30)"], dict(os.environ), tmp_path) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_terminated_agent_may_choose_its_own_code(sandbox) -> None:
    sandbox.agent('trap "exit 9" TERM; touch ready; while :; do sleep 0.05; done')
    process = sandbox.start("launch", "pi")
    sandbox.wait_for(sandbox.project / "ready")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == 9


@pytest.mark.parametrize("flags", [[], ["--sealed"]], ids=["plain", "sealed"])
def test_an_agent_does_not_outlive_a_killed_launch(flags: list[str], sandbox) -> None:
    sandbox.agent('echo $$ > pid; trap "touch got-term; exit 0" TERM; touch ready; while :; do sleep 0.05; done')
    process = sandbox.start("launch", "pi", *flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sandbox.wait_for(sandbox.project / "ready")
    process.kill()
    process.wait(20)
    sandbox.wait_for(sandbox.project / "got-term")
    pid = int((sandbox.project / "pid").read_text())
    deadline = time.monotonic() + 180
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert session_of(sandbox)["runs"][-1]["end"] is None
    assert [s["status"] for s in json.loads(sandbox.run("ls", "--json").stdout)["sessions"]] == ["crashed"]


def test_the_lease_is_held_while_the_agent_runs(sandbox) -> None:
    sandbox.agent("touch ready; while [ ! -e stop ]; do sleep 0.05; done")
    process = sandbox.start("launch", "pi")
    sandbox.wait_for(sandbox.project / "ready")
    (lease,) = (sandbox.runtime / "leases").iterdir()
    assert json.loads(lease.read_text())["pid"] == process.pid
    with lease.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert [s["status"] for s in json.loads(sandbox.run("ls", "--json").stdout)["sessions"]] == ["running"]
    assert "1 running" in sandbox.run("status").stdout
    (sandbox.project / "stop").touch()
    process.communicate(timeout=180)
    assert process.returncode == 0


def test_exec_becomes_the_agent_and_keeps_the_lease(sandbox) -> None:
    sandbox.agent("echo $$ > pid; touch ready; while [ ! -e stop ]; do sleep 0.05; done; exit 7")
    process = sandbox.start("launch", "pi", "--exec")
    sandbox.wait_for(sandbox.project / "ready")
    assert int((sandbox.project / "pid").read_text()) == process.pid
    (lease,) = (sandbox.runtime / "leases").iterdir()
    with lease.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    (sandbox.project / "stop").touch()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 7
    assert "served here" not in err


def test_exec_of_something_that_cannot_run(sandbox) -> None:
    (sandbox.bin / "pi").write_bytes(b"\x00\x01 not a program")
    (sandbox.bin / "pi").chmod(0o755)
    assert sandbox.run("launch", "pi", "--exec", fake=True).returncode == 126


def test_an_engine_by_url(sandbox) -> None:
    sandbox.agent("exit 0")
    assert sandbox.run("engine", "start", "-q", fake=True).returncode == 0
    url = f"http://127.0.0.1:{sandbox.env['FT_PORT']}"
    assert sandbox.run("launch", "pi", "--engine", url, fake=True).returncode == 0
    token = json.loads((sandbox.runtime / "engine.json").read_text())["admin_token"]
    elsewhere = {"FT_HOME": str(sandbox.root / "elsewhere"), "FT_ENGINE_TOKEN": token}
    assert sandbox.run("launch", "pi", "--engine", url, env=elsewhere, fake=True).returncode == 0
    assert sandbox.run("launch", "pi", "--engine", url, env={"FT_HOME": elsewhere["FT_HOME"]}).returncode == 4


def test_case_11_another_machine_only_when_asked(sandbox) -> None:
    """0.0.0.0 is no loopback name, and reaches this machine all the same."""
    sandbox.agent("env > seen")
    assert sandbox.run("engine", "start", "-q", fake=True).returncode == 0
    token = json.loads((sandbox.runtime / "engine.json").read_text())["admin_token"]
    url = f"http://0.0.0.0:{sandbox.env['FT_PORT']}"
    refused = sandbox.run("launch", "pi", "--engine", url, env={"FT_ENGINE_TOKEN": token})
    assert refused.returncode == 4
    assert not (sandbox.runtime / "registered.json").exists()
    done = sandbox.run("launch", "pi", "--engine", url, "--force", env={"FT_ENGINE_TOKEN": token})
    assert done.returncode == 0, done.stderr
    assert "FT_ENGINE_TOKEN" not in (sandbox.project / "seen").read_text()


def test_a_vanished_folder_is_said(sandbox) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -P -m ftagent launch pi"
    done = subprocess.run(["sh", "-c", command], env=sandbox.env, cwd=sandbox.root, capture_output=True, text=True)
    assert done.returncode == 3
    assert "no longer exists" in done.stderr
