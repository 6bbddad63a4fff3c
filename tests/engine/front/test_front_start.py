"""Starts that cannot work: each ends with its exit code and one sentence that names the cause."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.front.runtime import Conflict, RuntimeDir, listen, port_owner
from engine.front.supervision import orphan
from engine.front.supervision.orphan import process_start
from tests.engine.front.fakes import fake_engine
from tests.ports import free_port
from tests.serving import SERVE


def serve(models_dir: Path, runtime_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*SERVE, "--models-dir", str(models_dir), "--runtime-dir", str(runtime_dir), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_unknown_model(models_dir: Path, tmp_path: Path) -> None:
    done = serve(models_dir, tmp_path / "run", "--model", "no-such-model")
    assert done.returncode == 3 and "no-such-model" in done.stderr and "Traceback" not in done.stderr


def test_bad_flag(models_dir: Path, tmp_path: Path) -> None:
    done = serve(models_dir, tmp_path / "run", "--model", "tiny-hybrid", "--kv", "plenty")
    assert done.returncode == 2 and "--kv" in done.stderr and "Traceback" not in done.stderr


def test_a_plan_that_does_not_fit(models_dir: Path, tmp_path: Path) -> None:
    done = serve(models_dir, tmp_path / "run", "--model", "smollm2-moe", "--kv", "900m")
    assert done.returncode == 5 and "Traceback" not in done.stderr
    assert "short" in done.stderr


@pytest.mark.parametrize("damage", ["truncated", "missing", "tokenizer"])
def test_damaged_models(models_dir: Path, tmp_path: Path, damage: str) -> None:
    model = tmp_path / "tiny"
    shutil.copytree(models_dir / "tiny-hybrid", model)
    name = {"truncated": "dense.bin", "missing": "experts-000.bin", "tokenizer": "tokenizer.json"}[damage]
    file = model / name
    if damage == "truncated":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "missing":
        file.unlink()
    else:
        file.write_text("{")
    done = serve(models_dir, tmp_path / "run", "--model", str(model), "--port", str(free_port()))
    assert done.returncode == 5 and name in done.stderr and "Traceback" not in done.stderr
    assert "ft models import SOURCE --name tiny --force" in done.stderr


@pytest.mark.parametrize("file", ["tokenizer.json", "chat_template.jinja", "config.json"])
@pytest.mark.parametrize("name", ["tiny-hybrid", "mine"])
def test_a_damaged_text_file_names_itself_and_a_command_that_makes_the_model_again(
    models_dir: Path, tmp_path: Path, file: str, name: str
) -> None:
    shutil.copytree(models_dir / "tiny-hybrid", tmp_path / name)
    (tmp_path / name / file).write_text({"config.json": "{", "tokenizer.json": "{}"}.get(file, "{% if %}"))
    done = serve(tmp_path, tmp_path / "run", "--model", name, "--port", str(free_port()))
    again = (
        "ft models tiny-hybrid --force" if name == "tiny-hybrid" else f"ft models import SOURCE --name {name} --force"
    )
    assert done.returncode == 5 and file in done.stderr and again in done.stderr, done.stderr


def test_a_runtime_folder_that_cannot_be_written_is_one_sentence(models_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "supervisor.lock").mkdir()
    done = serve(models_dir, tmp_path, "--model", "tiny-hybrid", "--port", str(free_port()))
    assert done.returncode == 5 and "Traceback" not in done.stderr
    assert f"{tmp_path / 'supervisor.lock'}: Is a directory." in done.stderr


def test_taken_port_names_its_owner(models_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = serve(models_dir, tmp_path / "run", "--model", "tiny-hybrid", "--port", str(port))
        assert done.returncode == 6
        assert f"Port {port} is used by" in done.stderr and f"pid {os.getpid()}," in done.stderr
        with pytest.raises(Conflict):
            listen("127.0.0.1", port)
        assert str(os.getpid()) in str(port_owner(port))
    assert port_owner(port) is None


def test_second_engine_in_one_runtime_dir(models_dir: Path) -> None:
    with fake_engine(models_dir) as (engine, _):
        done = serve(models_dir, engine.runtime_dir, "--model", "tiny-hybrid", "--port", str(free_port()))
        assert done.returncode == 6 and f"pid {engine.process.pid}" in done.stderr
        assert json.loads((engine.runtime_dir / "engine.json").read_text())["pid"] == engine.process.pid
        engine.get("/v1/stats")


def test_lock_is_free_again_after_a_kill(tmp_path: Path) -> None:
    code = f"from engine.front.runtime import RuntimeDir; from pathlib import Path; RuntimeDir.take(Path({str(tmp_path)!r})); import os; os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == -9
    runtime = RuntimeDir.take(tmp_path)
    with pytest.raises(Conflict, match="already runs"):
        RuntimeDir.take(tmp_path, patience_s=0.1)
    runtime.close()
    RuntimeDir.take(tmp_path).close()


def test_a_folder_whose_engine_is_ending_is_waited_for_and_one_that_serves_is_not(tmp_path: Path) -> None:
    runtime = RuntimeDir.take(tmp_path)
    runtime.announce({"pid": os.getpid(), "start_time": process_start(os.getpid()), "port": 1})
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        RuntimeDir.take(tmp_path, patience_s=600)
    runtime.ending()
    threading.Timer(0.5, runtime.close).start()
    RuntimeDir.take(tmp_path, patience_s=600).close()


def test_a_worker_that_outlives_its_engine_is_ended_and_no_other_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    worker, other = (subprocess.Popen(command, start_new_session=True) for _ in range(2))
    orphan.note(tmp_path, worker.pid)
    RuntimeDir.take(tmp_path).close()
    assert worker.wait(60) == -9 and not (tmp_path / orphan.FILE).exists()
    (tmp_path / orphan.FILE).write_text(json.dumps({"pid": other.pid, "start_time": 1}))
    RuntimeDir.take(tmp_path).close()
    assert other.poll() is None
    other.kill()
    other.wait(60)


def test_a_runtime_folder_is_no_link_and_nobody_else_writes_in_it(tmp_path: Path) -> None:
    target = tmp_path / "etc"
    target.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(Conflict, match="is a link"):
        RuntimeDir.take(tmp_path / "link")
    assert (target.stat().st_mode & 0o777, list(target.iterdir())) == (0o755, [])
    target.chmod(0o777)
    with pytest.raises(Conflict, match="Others may write"):
        RuntimeDir.take(target)
    with pytest.raises(Conflict, match="cannot be made"):
        RuntimeDir.take(Path("/proc/ft"))
    fresh = RuntimeDir.take(tmp_path / "fresh")
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o700
    fresh.close()


def test_process_start_names_a_process() -> None:
    assert isinstance(process_start(os.getpid()), int)
    assert process_start(2**22 + 1) is None
