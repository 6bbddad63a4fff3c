"""The engine as a process, against a stand-in front: started once, waited for, stopped; every failure named."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ftagent.chat import Chat
from ftagent.errors import EngineNotReady
from ftagent.local_engine.client import EngineClient, parse_engine_url


def test_start_wait_status_stop(sandbox) -> None:
    done = sandbox.run("engine", "start", fake=True)
    assert done.returncode == 0, done.stderr
    assert "making it (once)" in done.stderr
    assert "engine ready at http://127.0.0.1:" in done.stderr
    again = sandbox.run("engine", "start", fake=True)
    assert again.returncode == 0
    assert sandbox.engine_starts() == 1
    status = json.loads(sandbox.run("engine", "status", "--json").stdout)
    assert (status["state"], status["model"], status["window_tokens"]) == ("ready", "smollm2-moe", 65536)
    assert sandbox.run("engine", "status").returncode == 0
    assert "fake front: reading smollm2-moe" in sandbox.run("engine", "logs").stdout
    assert sandbox.run("engine", "stop").returncode == 0
    assert sandbox.run("engine", "status").returncode == 3
    assert sandbox.run("engine", "stop").returncode == 0


def test_the_engine_is_its_own_session_with_a_clean_environment(sandbox) -> None:
    env = {"PYTHONPATH": ".", "PYTHONSTARTUP": "x.py", "OPENAI_API_KEY": "k", "MY_FLAG": "1"}
    assert sandbox.run("engine", "start", fake=True, env=env).returncode == 0
    pid = int((sandbox.runtime / "starts").read_text())
    assert os.getsid(pid) == pid
    seen = json.loads((sandbox.runtime / "environment.json").read_text())
    assert not {"PYTHONPATH", "PYTHONSTARTUP", "OPENAI_API_KEY"} & set(seen)
    assert seen["MY_FLAG"] == "1"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    log = os.readlink(f"/proc/{pid}/fd/1")
    assert log == os.readlink(f"/proc/{pid}/fd/2") == str((sandbox.ft_home / "state/logs/engine.log").resolve())


def test_case_13_two_at_the_same_instant_start_one_engine(sandbox) -> None:
    sandbox.model()
    env = {"FAKE_LOADING_S": "0.5"}
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: sandbox.run("engine", "start", fake=True, env=env), range(3)))
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert sandbox.engine_starts() == 1


def test_progress_is_shown_by_phase(sandbox) -> None:
    sandbox.model()
    done = sandbox.run("engine", "start", fake=True, env={"FAKE_LOADING_S": "0.4"})
    lines = [line for line in done.stderr.splitlines() if "reading weights" in line]
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies", "the weights are broken"),
        ("crashed", "Not enough memory for the weights."),
        ("stuck", "no progress for 1 s in phase 'reading weights'"),
    ],
)
def test_an_engine_that_does_not_get_ready_is_exit_5_with_the_cause(mode: str, said: str, sandbox) -> None:
    sandbox.model()
    done = sandbox.run("engine", "start", "--wait", "1", fake=True, env={"FAKE_MODE": mode})
    assert done.returncode == 5
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 5  # model, phases, one sentence, one fix


def test_an_engine_that_serves_while_it_reads_is_enough_for_a_request_and_not_ready(sandbox) -> None:
    sandbox.model()
    done = sandbox.run("run", "-q", "hello", fake=True, env={"FAKE_MODE": "early"})
    assert (done.returncode, done.stdout) == (0, "You said: hello.\n")
    assert sandbox.run("engine", "wait", "--wait", "1", fake=True).returncode == 5


def test_a_crashed_engine_is_exit_5_and_replaced_by_a_start(sandbox) -> None:
    sandbox.model()
    assert sandbox.run("engine", "start", "-q", fake=True, env={"FAKE_MODE": "crashed"}).returncode == 5
    for command in (["status"], ["engine", "status"]):
        done = sandbox.run(*command)
        assert done.returncode == 5
        assert "crashed" in done.stdout and "Not enough memory for the weights. Use --kv 8k." in done.stdout
    assert json.loads(sandbox.run("engine", "status", "--json").stdout)["hint"] == "Use --kv 8k."
    assert sandbox.run("engine", "wait", fake=True).returncode == 5
    plan = json.loads(sandbox.run("launch", "mini", "--dry-run", "--json").stdout)
    assert plan["engine"]["running"] is False and plan["engine"]["start_command"]
    done = sandbox.run("run", "-q", "hello", fake=True)
    assert (done.returncode, done.stdout) == (0, "You said: hello.\n")
    assert sandbox.engine_starts() == 2
    assert sandbox.run("status").returncode == 0


def test_restart(sandbox) -> None:
    sandbox.model()
    sandbox.model("other")
    assert sandbox.run("engine", "restart", "-q", fake=True).returncode == 0
    assert sandbox.run("engine", "restart", "-m", "nope", fake=True).returncode == 3
    said = sandbox.run("engine", "restart", "--dry-run", fake=True).stdout
    assert said.startswith("would stop the engine, and start: ft serve --model smollm2-moe ")
    assert sandbox.engine_starts() == 1
    assert sandbox.run("engine", "restart", "-q", "-m", "other", "--kv", "8k", fake=True).returncode == 0
    assert sandbox.run("engine", "restart", "-q", fake=True).returncode == 0  # keeps the model that it serves
    assert sandbox.engine_starts() == 3
    assert json.loads(sandbox.run("engine", "status", "--json").stdout)["model"] == "other"
    done = sandbox.run("engine", "start", "--kv", "16k", fake=True)
    assert done.returncode == 0
    assert "ft engine restart --kv 16384" in done.stderr


def test_a_foreign_port_is_exit_6_and_names_its_owner(sandbox) -> None:
    sandbox.model()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(sandbox.env["FT_PORT"])))
        listener.listen()
        done = sandbox.run("engine", "start", fake=True)
    assert done.returncode == 6
    assert f"pid {os.getpid()}" in done.stderr
    assert sandbox.env["FT_PORT"] in done.stderr
    assert not (sandbox.runtime / "starts").exists()


def test_another_ft_home_on_the_same_port_is_exit_6(sandbox, tmp_path: Path) -> None:
    sandbox.model()
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    done = sandbox.run("engine", "start", "-m", "smollm2-moe", fake=True, env={"FT_HOME": str(tmp_path / "other")})
    assert done.returncode == 6
    assert "another ft engine" in done.stderr


def test_a_stale_runtime_file_does_not_count(sandbox) -> None:
    sandbox.model()
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    os.kill(int((sandbox.runtime / "starts").read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 120
    while sandbox.run("engine", "status").returncode != 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sandbox.run("engine", "status").returncode == 3
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    assert sandbox.engine_starts() == 2


def test_another_model_is_a_conflict_not_a_restart(sandbox) -> None:
    sandbox.model()
    sandbox.model("other")
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    done = sandbox.run("launch", "mini", "--dry-run", "-m", "other")
    assert done.returncode == 6
    assert "serves smollm2-moe" in done.stderr
    plan = json.loads(sandbox.run("launch", "mini", "--dry-run", "--json").stdout)
    assert plan["engine"]["running"] is True
    assert plan["engine"]["window_source"] == "engine"


def test_no_start_and_dry_run_start_nothing(sandbox) -> None:
    assert sandbox.run("launch", "mini", "--no-start", fake=True).returncode == 3
    done = sandbox.run("engine", "start", "--dry-run", fake=True)
    assert done.returncode == 0
    assert "would start: ft serve --model smollm2-moe" in done.stdout
    assert "ft models pull smollm2-moe" in done.stderr
    assert not sandbox.runtime.exists()


def test_serve_is_the_engine_in_the_foreground(sandbox) -> None:
    sandbox.model()
    process = sandbox.start("serve")
    deadline = time.monotonic() + 120
    while sandbox.run("engine", "status").returncode != 0:
        assert time.monotonic() < deadline
    assert int((sandbox.runtime / "starts").read_text()) == process.pid
    assert sandbox.run("serve", fake=True).returncode == 6
    assert sandbox.run("engine", "stop").returncode == 0
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_ctl_and_logs(sandbox) -> None:
    assert sandbox.run("engine", "start", fake=True).returncode == 0
    assert json.loads(sandbox.run("ctl", "health", "--json").stdout)["status"] == "ok"
    assert json.loads(sandbox.run("ctl", "stats", "--json").stdout)["schema"] == "ft.stats/1"
    assert "PROMPT" in sandbox.run("ctl", "requests").stdout
    assert "model" in sandbox.run("ctl", "stats").stdout
    assert sandbox.run("ctl", "requests", "--session", "s-none").returncode == 3


def test_ft_run_streams_the_answer(sandbox) -> None:
    done = sandbox.run("run", "hello", fake=True)
    assert (done.returncode, done.stdout) == (0, "You said: hello.\n")
    assert sandbox.run("run", "-", fake=True, input="from stdin").stdout == "You said: from stdin.\n"
    document = json.loads(sandbox.run("run", "--json", "hello", fake=True).stdout)
    assert document["text"] == "You said: hello."
    assert document["thinking"] == "hm"
    assert document["usage"]["prompt_tokens"] == 9
    assert document["ttft_s"] > 0
    assert "cached 4" in sandbox.run("run", "-v", "hello", fake=True).stderr
    assert sandbox.run("run", fake=True).returncode == 2


def test_the_newline_that_ends_standard_input_is_no_part_of_the_question(sandbox) -> None:
    for text, asked in (("2+2?\n", "2+2?"), ("2+2?\r\n", "2+2?"), ("a\n\n", "a\n"), ("  a", "  a")):
        assert sandbox.run("run", fake=True, input=text).returncode == 0
        assert json.loads((sandbox.runtime / "asked.json").read_text())["messages"][-1]["content"] == asked
    done = subprocess.run(
        [*sandbox.fake_ft, "run"], env=sandbox.env, cwd=sandbox.project, input=b"\xff", capture_output=True, check=False
    )
    assert done.returncode in (2, 4)
    assert b"not valid UTF-8" in done.stderr


def test_an_engine_that_does_not_listen_is_killed(sandbox, monkeypatch) -> None:
    from ftagent.local_engine.running import find_engine
    from ftagent.local_engine.stop import stop_engine
    from ftagent.paths import find_paths

    sandbox.model()
    assert sandbox.run("engine", "start", fake=True, env={"FAKE_MODE": "deaf"}).returncode == 0
    monkeypatch.setattr("ftagent.local_engine.stop.TERM_GRACE_S", 0.3)
    paths = find_paths(sandbox.env)
    assert stop_engine(paths, grace_s=0.2) is True
    assert find_engine(paths) is None


@pytest.mark.parametrize("mode", ["dies-between", "dies-within"])
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_an_answer_that_breaks_off_is_an_error(mode: str, flags: list[str], sandbox) -> None:
    done = sandbox.run("run", *flags, "hello", fake=True, env={"FAKE_MODE": mode})
    assert done.returncode == 5, done.stdout
    assert "in the middle of an answer" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr and "ft.answer/1" not in done.stdout


def test_a_chunked_answer_that_breaks_off_is_an_error() -> None:
    """As the real front sends it: the body has chunks, and the last one is missing."""
    event = b'data: {"choices": [{"delta": {"content": "half"}, "finish_reason": null}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head + b"%x\r\n" % len(event) + event + b"\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        chat = Chat(EngineClient(parse_engine_url(f"http://127.0.0.1:{server.getsockname()[1]}")), "m")
        pieces: list[str] = []
        with pytest.raises(EngineNotReady):
            chat.ask("hello", pieces.append, pieces.append)
        thread.join()
    assert pieces == ["half"] and chat.messages == []
