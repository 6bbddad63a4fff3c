"""The same paths with the real engine: started by a launch, shared by a second one, asked, stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ftagent.processes import is_alive

SCRIPT = {
    "turns": [
        {"blocks": [{"text": "I write."}, {"tool": "write", "args": {"path": "a.txt", "content": "one\n"}}]},
        {"blocks": [{"tool": "bash", "args": {"command": "echo $PYTHONPATH > seen; cat a.txt"}}]},
        {"blocks": [{"text": "All done."}]},
    ]
}


@pytest.fixture
def real(sandbox, models_dir: Path) -> Iterator:
    """A sandbox whose engine is the real one with the tiny model, in a project that has packages of our names."""
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "PYTHONPATH": ".", "FT_THREADS": "2"}
    for name in ("engine", "harnesses", "tests"):
        (sandbox.project / name).mkdir()
        (sandbox.project / name / "__init__.py").write_text(f"raise SystemExit('imported the project\\'s {name}')\n")
    (sandbox.root / "script.json").write_text(json.dumps(SCRIPT))
    yield sandbox
    assert sandbox.run("engine", "stop").returncode == 0
    assert sandbox.run("engine", "status").returncode == 3


def launch(box) -> subprocess.CompletedProcess[str]:
    script = str(box.root / "script.json")
    return box.run("launch", "mini", "--force", "--script", script, "--", "Make a file.", timeout=120)


def test_case_13_launches_at_the_same_instant_share_one_engine(real) -> None:
    """Cases 10 and 13, and the canary: two launches at the same instant, each with its own session."""
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: launch(real), range(2)))
    for run in runs:
        assert run.returncode == 0, run.stderr
        assert "All done." in run.stdout
        assert "3 requests served here" in run.stderr
        assert "ended (scripted replay)" in run.stderr
    assert (real.project / "a.txt").read_text() == "one\n"
    assert (real.project / "seen").read_text() == ".\n"
    logs = [path for path in (real.ft_home / "state" / "logs").glob("engine-*.log")]
    assert len(logs) == 1

    listed = json.loads(real.run("ls", "--json").stdout)["sessions"]
    assert len({session["id"] for session in listed}) == 2
    assert all(session["stats"]["requests"] == 3 and session["stats"]["cached_tokens"] > 0 for session in listed)

    status = json.loads(real.run("status", "--json").stdout)
    assert (status["engine"]["state"], status["engine"]["model"]) == ("ready", "tiny-hybrid")
    records = json.loads(real.run("ctl", "requests", "--json", "--session", listed[0]["id"]).stdout)["requests"]
    assert [record["scripted"] for record in records] == [True] * 3
    explained = json.loads(real.run("ctl", "explain", listed[0]["id"], "--texts", "--json").stdout)
    assert [turn["broke_at"] for turn in explained["turns"]] == [None] * 3 and explained["session"]["requests"] == 3
    shown = real.run("ctl", "explain").stdout
    assert "first of its line" in shown and shown.count("continues") == 2
    assert real.run("ctl", "explain", "s-unknown").returncode == 3
    anchors = json.loads(real.run("ctl", "anchors", "--json").stdout)["anchors"]
    assert "head" in {anchor["kind"] for anchor in anchors}
    assert all(anchor["position"] > 0 and anchor["tier"] in ("ram", "disk") for anchor in anchors)
    assert real.run("ctl", "health").returncode == real.run("ctl", "stats").returncode == 0

    plan = json.loads(real.run("launch", "mini", "--dry-run", "--json", "--force").stdout)
    assert plan["engine"]["window_source"] == "engine"
    assert plan["engine"]["max_output_tokens"] == listed[0]["model"]["max_output"]

    answer = json.loads(real.run("run", "--json", "--max-output", "8", "hello", timeout=120).stdout)
    assert answer["usage"]["completion_tokens"] > 0


def test_an_engine_that_cannot_fit_is_exit_5_with_the_arithmetic(real) -> None:
    done = real.run("engine", "start", "--kv", "4000m", timeout=120)
    assert done.returncode == 5
    assert "GiB" in done.stderr
    plan = real.run("engine", "plan", "--json", timeout=120)
    assert plan.returncode == 0, plan.stderr
    assert json.loads(plan.stdout)["schema"] == "ft.engine-plan/1"


def test_an_engine_that_a_launch_started_ends_by_itself(real) -> None:
    real.env["FT_IDLE_STOP"] = "2"
    assert launch(real).returncode == 0
    deadline = time.monotonic() + 180
    while real.run("engine", "status").returncode != 3:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert real.run("engine", "start", "-q", timeout=120).returncode == 0  # the one before may still have the folder
    assert launch(real).returncode == 0
    time.sleep(5)
    assert real.run("engine", "status").returncode == 0, "one that a person started is gone"


def test_a_killed_engine_and_a_killed_worker_are_followed_by_new_ones(real) -> None:
    assert real.run("engine", "start", "-q", timeout=120).returncode == 0
    front, worker = pids(real)
    os.kill(worker, signal.SIGSTOP)  # one that hangs does not see that its engine is gone
    os.kill(front, signal.SIGKILL)
    gone(front)
    assert real.run("engine", "status").returncode == 3
    assert real.run("engine", "start", "-q", timeout=120).returncode == 0
    gone(worker)
    front, worker = pids(real)
    os.kill(worker, signal.SIGKILL)
    assert real.run("engine", "start", "-q", timeout=120).returncode == 0
    assert pids(real)[0] == front and pids(real)[1] != worker


def pids(real) -> tuple[int, int]:
    """The engine's, and its worker's."""
    noted = json.loads((real.runtime / "worker.json").read_text())
    return json.loads((real.runtime / "engine.json").read_text())["pid"], noted["pid"]


def gone(pid: int) -> None:
    deadline = time.monotonic() + 180
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.05)


def test_models_are_listed(real, models_dir: Path) -> None:
    done = real.run("models", "ls", "--json")
    assert done.returncode == 0, done.stderr
    assert "tiny-hybrid" in done.stdout
