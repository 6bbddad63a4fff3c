"""Engines that end, start, hang or are gone when somebody else starts or stops one: one engine in the end, and nobody harmed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ftagent.local_engine import stop
from ftagent.local_engine.holder import holder
from ftagent.local_engine.running import find_engine
from ftagent.paths import find_paths
from ftagent.processes import is_alive, start_time

ENDING = {"FAKE_ENDING_S": "2"}


def ending_engine(sandbox) -> int:
    """The pid of an engine that answers no more and has not ended."""
    sandbox.model()
    assert sandbox.run("engine", "start", "-q", fake=True, env=ENDING).returncode == 0
    engine = find_engine(find_paths(sandbox.env))
    assert engine is not None and engine.pid is not None
    engine.client.post("/v1/engine/stop", {})
    until(lambda: find_engine(find_paths(sandbox.env)) is None)
    return engine.pid


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_start_waits_for_the_engine_that_is_ending(sandbox) -> None:
    before = ending_engine(sandbox)
    done = sandbox.run("engine", "start", fake=True)
    assert done.returncode == 0, done.stderr
    assert sandbox.engine_starts() == 2 and not is_alive(before)
    assert sandbox.run("engine", "status").returncode == 0


def test_an_ending_engine_is_said_to_be_stopping_and_a_stop_waits_for_its_end(sandbox, monkeypatch) -> None:
    monkeypatch.setattr(stop, "TERM_GRACE_S", 0.3)
    sandbox.model()
    assert sandbox.run("engine", "start", "-q", fake=True, env={"FAKE_ENDING_S": "30"}).returncode == 0
    paths = find_paths(sandbox.env)
    engine = find_engine(paths)
    assert engine is not None and engine.pid is not None
    engine.client.post("/v1/engine/stop", {})
    until(lambda: sandbox.run("engine", "status").returncode != 0)
    status = sandbox.run("engine", "status")
    assert status.returncode == 3 and "stopping" in status.stdout and str(engine.pid) in status.stdout
    assert json.loads(sandbox.run("engine", "status", "--json").stdout)["state"] == "stopping"
    assert sandbox.run("engine", "wait", fake=True).returncode == 3
    assert stop.stop_engine(paths, grace_s=0.2) is True  # asks, then ends it
    assert not is_alive(engine.pid) and holder(paths) is None


def test_serve_waits_for_the_engine_that_is_ending(sandbox) -> None:
    before = ending_engine(sandbox)
    served = sandbox.start("serve")
    until(lambda: sandbox.run("engine", "status").returncode == 0)
    assert sandbox.engine_starts() == 2 and not is_alive(before)
    assert sandbox.run("engine", "stop").returncode == 0
    assert "which is ending" in served.communicate(timeout=300)[1]


def test_starts_and_stops_at_once_leave_an_engine_that_can_be_used(sandbox) -> None:
    sandbox.model()
    env = {"FAKE_ENDING_S": "0.3", "FAKE_LOADING_S": "0.2"}
    words = ("start", "stop", "start", "stop", "restart")
    with ThreadPoolExecutor(len(words)) as pool:
        runs = list(pool.map(lambda word: sandbox.run("engine", word, fake=True, env=env), words))
    for word, run in zip(words, runs, strict=True):
        assert run.returncode == 0 or (word != "stop" and run.returncode == 5), (word, run.stderr)
        assert "Traceback" not in run.stderr
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    living = [pid for pid in (sandbox.runtime / "starts").read_text().split() if is_alive(int(pid))]
    assert len(living) == 1


def test_serve_and_start_at_once_share_one_engine(sandbox) -> None:
    sandbox.model()
    served = sandbox.start("serve")
    done = sandbox.run("engine", "start", "-q", fake=True)
    assert done.returncode == 0, done.stderr
    assert sandbox.engine_starts() == 1
    assert sandbox.run("engine", "stop").returncode == 0
    served.communicate(timeout=60)


def test_a_runtime_folder_of_processes_that_are_gone_harms_no_other_with_their_pids(sandbox) -> None:
    """As after a reboot with the folder kept: the pid in it is somebody else's now."""
    sandbox.model()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as other:
        sandbox.runtime.mkdir(parents=True, mode=0o700)
        facts = {
            "pid": other.pid,
            "start_time": 1,
            "port": int(sandbox.env["FT_PORT"]),
            "nonce": "n",
            "admin_token": "t",
        }
        (sandbox.runtime / "engine.json").write_text(json.dumps({**facts, "model": "smollm2-moe", "version": "0"}))
        (sandbox.runtime / "supervisor.lock").write_text(f"{other.pid} 1\n")
        (sandbox.runtime / "worker.json").write_text(json.dumps({"pid": other.pid, "start_time": 1}))
        assert sandbox.run("engine", "status").returncode == 3
        assert sandbox.run("engine", "stop").returncode == 0
        assert sandbox.run("engine", "start", fake=True).returncode == 0
        assert is_alive(other.pid)
        other.kill()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTERM], ids=["hangs", "starts"])
def test_a_stop_ends_what_has_the_folder_and_does_not_answer(number: signal.Signals, sandbox, monkeypatch) -> None:
    paths = find_paths(sandbox.env)
    sandbox.runtime.mkdir(parents=True, mode=0o700)
    lock = sandbox.runtime / "supervisor.lock"
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('held', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    lock.write_text(f"{process.pid} {start_time(process.pid)}\n")
    held = holder(paths)
    assert held is not None and (held.pid, held.doing) == (process.pid, "starting")
    if number is signal.SIGSTOP:
        os.kill(process.pid, signal.SIGSTOP)
        (sandbox.runtime / "engine.json").write_text(json.dumps({"pid": process.pid}))
        held = holder(paths)
        assert held is not None and held.doing == "unresponsive"
        (sandbox.runtime / "engine.json").write_text('{"pid": 1, "po')
        held = holder(paths)
        assert held is not None and held.doing == "unresponsive"  # what cannot be read was not written by an engine
        monkeypatch.setattr(stop, "TERM_GRACE_S", 0.3)
    assert stop.stop_engine(paths) is True
    assert process.wait(60) in (-signal.SIGKILL, -signal.SIGTERM)
    process.stdout.close()


def test_looking_at_the_lock_does_not_keep_an_engine_from_starting(tmp_path: Path) -> None:
    """The real lock of the engine, taken again and again while somebody looks all the time."""
    from engine.front.runtime import RuntimeDir

    paths = find_paths({"HOME": str(tmp_path), "FT_HOME": str(tmp_path / "ft")})
    code = "import sys; from ftagent.paths import find_paths; from ftagent.local_engine.holder import holder\nwhile True: holder(find_paths({'HOME': sys.argv[1], 'FT_HOME': sys.argv[1] + '/ft'}))"
    paths.runtime.mkdir(parents=True, mode=0o700)
    with subprocess.Popen([sys.executable, "-P", "-c", code, str(tmp_path)]) as looking:
        for _ in range(50):
            RuntimeDir.take(paths.runtime).close()
        looking.kill()
