"""The worker process through its real socket."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.bench import fake_runner as fake
from engine.memory.geometry import Geometry
from engine.protocol import VERSION, Decoder, Submit, encode

HERE = Path(__file__).parent
VOCAB = 11


def write_model(directory, hybrid):
    geometry = Geometry(
        vocab_size=VOCAB,
        hidden_size=8,
        layers=2,
        attention_layers=1,
        kv_heads=1,
        head_dim=4,
        state_layer_bytes=(4096,) if hybrid else (),
        moe_layers=0,
        experts=0,
        top_k=0,
        expert_width=0,
        expert_bytes=0,
        bank_bytes=0,
        dense_bytes=64,
        max_window_tokens=2048,
    )
    directory.mkdir()
    for name in ("tokenizer.json", "chat_template.jinja", "config.json"):
        (directory / name).write_text("{}")
    (directory / "dense.bin").write_bytes(bytes(64))
    manifest = {
        "format": "ftw/1",
        "name": "fake",
        "arch": "fake",
        "created_by": "test",
        "kv_dtype": "f32",
        "geometry": geometry.to_json(),
        "dense": {"file": "dense.bin", "bytes": 64, "crc32": 0, "tensors": {}},
        "banks": [],
        "eos_token_ids": [2],
        "dialect": "hermes",
        "thinking": False,
        "quality": "toy",
        "window_tokens": 2048,
    }
    (directory / "ftw.json").write_text(json.dumps(manifest))
    return directory


class Front:
    """Listens like the front, starts one worker, speaks the protocol."""

    def __init__(self, directory, layer_s=0.0, how="ok", hybrid=False, version=VERSION, flags=()):
        self.listener = socket.socket(socket.AF_UNIX)
        path = directory / "worker.sock"
        self.listener.bind(str(path))
        self.listener.listen()
        model = write_model(directory / "model", hybrid)
        argv = [str(HERE / "worker_with_fake.py"), str(layer_s), how, "--model", str(model)]
        argv += ["--runtime-dir", str(directory), "--nonce", "n1", *flags]
        environ = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
        self.process = subprocess.Popen([sys.executable, "-P", *argv], env=environ, stderr=subprocess.PIPE, text=True)
        self.listener.settimeout(20)
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(20)
        self.decoder, self.messages = Decoder(), []
        self.send({"t": "hello", "version": version})

    def send(self, message):
        self.connection.sendall(encode(message))

    def next(self):
        while not self.messages:
            data = self.connection.recv(1 << 16)
            if not data:
                raise EOFError
            self.messages += self.decoder.feed(data)
        return self.messages.pop(0)

    def until(self, kind, **fields):
        """Messages up to and with the first of this kind and fields."""
        seen = []
        while True:
            seen.append(self.next())
            if seen[-1]["t"] == kind and all(seen[-1].get(k) == v for k, v in fields.items()):
                return seen

    def ready(self):
        return self.until("state", state="ready")

    def stats(self, n=1):
        self.send({"t": "stats", "n": n})
        return self.until("stats", n=n)[-1]["data"]

    def close(self):
        self.process.kill()
        self.process.wait(120)
        self.process.stderr.close()
        self.connection.close()
        self.listener.close()


@pytest.fixture
def front(tmp_path):
    fronts = []

    def start(**options):
        directory = tmp_path / f"run{len(fronts)}"
        directory.mkdir()
        fronts.append(Front(directory, **options))
        return fronts[-1]

    yield start
    for each in fronts:
        each.close()


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
def test_a_conversation_over_the_socket(front, hybrid):
    f = front(hybrid=hybrid, flags=["--kv", "1k"])
    start = f.ready()
    assert start[0] == {"t": "hello", "version": VERSION, "pid": f.process.pid, "nonce": "n1"}
    assert [m["state"] for m in start[1:]] == ["loading", "loading", "warming", "ready"]
    assert start[-1]["window"] == 1024 and start[-1]["kv_tokens"] == 1024
    tokens, cached = [1, 2, 3, 4, 5, 6, 7, 8] * 20, 0
    for turn in range(3):
        f.send(Submit(f"r{turn}", tokens, 6, session="s", stop_ids=[9]).message())
        seen = [m for m in f.until("done", rid=f"r{turn}") if m["t"] != "event"]
        output = [t for m in seen if m["t"] == "tokens" for t in m["ids"]]
        expected, reason = fake.cold(tokens, 6, VOCAB, hybrid, [9])
        assert (output, seen[-1]["reason"]) == (expected, reason)
        assert seen[0]["t"] == "accepted" and seen[1]["t"] == "progress"
        assert seen[0]["cached"] >= cached and seen[0]["cached"] + seen[0]["replayed"] + seen[0]["new"] == len(tokens)
        assert all(value is None or value >= 0 for value in seen[-1]["timings"].values())
        cached = len(tokens) - 1
        tokens = tokens + output + [turn, 3]
    data = f.stats()
    assert data["running"] == data["waiting"] == 0 and data["pages"]["cached"] > 0
    assert data["pages"]["total"] * data["pages"]["page_tokens"] >= 1024
    assert data["settings"]["kv_tokens"] == 1024 and data["settings"]["kv_dtype"] == "f32"
    assert data["settings"]["moe_slots"] == "not used here" and data["experts"]["misses"] == 3
    assert (data["checkpoints"] is not None) == hybrid
    f.send({"t": "shutdown", "drain_s": 5.0})
    assert f.process.wait(120) == 0


def test_stats_cancel_and_signs_of_life_during_a_long_step(front):
    f = front(layer_s=2.0)
    f.ready()
    f.send(Submit("slow", [1, 2, 3], 4).message())
    f.until("accepted")
    began = time.monotonic()
    assert f.stats()["running"] == 1
    f.until("progress", rid="slow")
    assert time.monotonic() - began < 7, "only after the step"
    f.send({"t": "cancel", "rid": "slow"})
    began = time.monotonic()
    assert f.until("done")[-1]["reason"] == "cancelled"
    assert time.monotonic() - began < 6, "cancelling waited for a whole step"
    assert f.stats(2)["running"] == 0


def test_shutdown_drains_and_then_drops(front):
    f = front()
    f.ready()
    f.send(Submit("short", [1, 2, 3], 5).message())
    f.send({"t": "shutdown", "drain_s": 10.0})
    assert f.until("done")[-1]["reason"] == "length"
    assert f.process.wait(120) == 0
    g = front(layer_s=0.2)
    g.ready()
    g.send(Submit("long", [1, 2, 3], 1000).message())
    g.until("tokens")
    g.send({"t": "shutdown", "drain_s": 0.1})
    assert g.until("error")[-1]["code"].startswith("FT-E0503")
    assert g.process.wait(120) == 0


@pytest.mark.parametrize(
    ("how", "code"), [("weights", "FT-E0510"), ("memory", "FT-E0512")], ids=["bad weights", "out of memory"]
)
def test_loading_failures_name_their_cause(front, how, code):
    f = front(how=how)
    failed = f.until("state", state="failed")[-1]
    assert failed["code"].startswith(code) and failed["message"] and failed["hint"]
    assert f.process.wait(120) == 5


def test_what_does_not_fit_is_refused_before_loading(front):
    f = front(how="hang", flags=["--kv", "2000000000"])
    failed = f.until("state", state="failed")[-1]
    assert failed["code"].startswith("FT-E0512") and "short" in failed["message"]
    assert f.process.wait(120) == 5


@pytest.mark.parametrize("how", ["ok", "hang"])
def test_the_worker_ends_with_its_front(front, how):
    f = front(how=how)
    f.until("state")
    f.connection.close()
    assert f.process.wait(120) == 0


def test_another_protocol_version_is_refused(front):
    f = front(version=VERSION + 1)
    assert f.process.wait(120) == 1
    assert "version" in f.process.stderr.read()


def test_a_bad_submit_is_answered_and_the_worker_goes_on(front):
    f = front()
    f.ready()
    f.send({"t": "submit", "rid": "odd", "tokens": [1], "max_tokens": 2, "colour": "blue"})
    assert f.until("error")[-1]["rid"] == "odd"
    f.send(Submit("long", [1] * 3000, 2).message())
    assert f.until("error")[-1]["code"].startswith("FT-E0413")
    f.send(Submit("good", [1, 2], 2).message())
    f.until("done", rid="good")


def test_idle_costs_nothing(front):
    f = front()
    f.ready()
    f.send(Submit("r", [1, 2], 2).message())
    f.until("done")

    def ticks():
        fields = Path(f"/proc/{f.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def second():
        before = ticks()
        time.sleep(1.0)
        return ticks() - before

    assert any(second() <= 1 for _ in range(30))  # what follows a request may take a while where others compute too


def test_damage_found_after_a_move_ends_what_is_served(front):
    f = front(layer_s=0.02, how="damaged")
    f.ready()
    f.send(Submit("r", [1, 2], 1000).message())
    f.until("tokens")
    asked = {"moe_slots": None, "kv_tokens": 256, "preset": None, "auto": False}
    f.send({"t": "memory", "n": 1, "op": "apply", **asked})
    error = f.until("error", rid="r")[-1]
    assert error["code"].startswith("FT-E0516") and "slot 7" in error["message"]
    failed = f.until("state", state="failed")[-1]
    assert failed["code"].startswith("FT-E0516") and failed["hint"]
    assert f.process.wait(120) == 5


def test_killed_and_stopped_workers_are_seen(front):
    f = front(layer_s=0.05)
    f.ready()
    f.send(Submit("r", [1, 2], 1000).message())
    f.until("tokens")
    f.process.send_signal(signal.SIGKILL)
    with pytest.raises((EOFError, ConnectionResetError)):
        f.until("done")
    assert f.process.wait(120) == -signal.SIGKILL
