"""Requests that the worker serves while its weights are still being read."""

import shutil
from pathlib import Path

import pytest

from engine.protocol import Submit
from engine.weights.manifest import load_manifest
from tests.engine.worker.wire import Wire

PROGRAM = str(Path(__file__).with_name("worker_behind_a_gate.py"))
FLAGS = ("--kv", "3k", "--threads", "2", "--moe-backend", "cpu", "--activations", "f32")

SPEEDS = ("--emulate-fill-gbs", "100", "--emulate-host-gbs", "200")
AUTO = (*FLAGS[:4], *FLAGS[6:], "--device", "emulated", "--device-memory", "128m", "--moe-slots", "24", *SPEEDS)


@pytest.fixture
def behind(tmp_path, models_dir):
    made = []

    def start(late_s=0.0, directory=models_dir / "tiny-hybrid", flags=FLAGS):
        gate = tmp_path / "gate"
        wire = Wire(tmp_path / "run", "--model", str(directory), *flags, program=(PROGRAM, str(gate), str(late_s)))
        made.append(wire)
        return wire, gate

    yield start
    for each in made:
        each.close()


def is_state(*names):
    return lambda m: m["t"] == "state" and m["state"] in names


def serves(message):
    return message["t"] == "state" and message.get("serves")


def test_a_request_is_served_before_the_last_expert_is_there(behind):
    wire, gate = behind()
    state = wire.until(serves)[-1]
    assert state["state"] == "loading" and state["done"] < state["total"]
    assert state["window"] == state["kv_tokens"] == 3072 and state["backend"] == "cpu"
    wire.send(Submit("a", [7, 300], 1).message())
    seen = wire.until(lambda m: m["t"] in ("done", "error"))
    assert seen[-1]["t"] == "done" and not any(is_state("ready", "warming")(m) for m in seen)
    (early,) = [m["ids"] for m in seen if m["t"] == "tokens"]
    gate.touch()
    seen = [m["state"] for m in wire.until(is_state("ready", "failed")) if m["t"] == "state"]
    assert seen[-1] == "ready" and "warming" in seen
    again, _ = wire.ask("b", [7, 300])
    assert again[:1] == early


def test_a_request_that_runs_while_the_backend_is_chosen_goes_on_the_same(behind):
    """The choice is left to the engine, on a device: requests are served before it is made, and over it."""
    wire, gate = behind(flags=AUTO)
    state = wire.until(serves)[-1]
    assert state["state"] == "loading" and state["backend"] == "", "it is still to be chosen"
    wire.send(Submit("a", [7, 300], 200).message())
    first = wire.until(lambda m: m["t"] in ("tokens", "done", "error"))[-1]
    assert first["t"] == "tokens", "it was served before the last expert was there"
    gate.touch()
    seen = [first, *wire.until(lambda m: m["t"] in ("done", "error"))]
    assert seen[-1]["t"] == "done" and seen[-1]["usage"]["output"] == 200
    early = [token for m in seen if m["t"] == "tokens" for token in m["ids"]]
    if not any(is_state("ready")(m) for m in seen):
        seen += wire.until(is_state("ready", "failed"))
    ready = next(m for m in seen if is_state("ready", "failed")(m))
    assert ready["state"] == "ready" and ready["backend"] in ("cpu", "offload", "hybrid")
    wire.send({"t": "stats", "n": 1})
    data = wire.until(lambda m: m["t"] == "stats")[-1]["data"]
    assert data["experts"]["decision"]["backend"] == ready["backend"] and data["experts"]["hits"] > 0
    told = wire.memory("map")["data"]
    assert (told["experts"] is None or told["experts"]["resident"] == 0) == (ready["backend"] == "cpu")
    changed = wire.memory("apply", n=9, kv_tokens=2000)
    assert "error" not in changed and changed["data"]["then"]["kv_tokens"] == 2000
    wire.send(Submit("b", [7, 300], 200).message())
    seen = wire.until(lambda m: m["t"] in ("done", "error"))
    assert [token for m in seen if m["t"] == "tokens" for token in m["ids"]] == early


def test_who_hangs_up_while_weights_come_leaves_nothing_behind(behind):
    wire, gate = behind(late_s=0.3)
    wire.until(serves)
    wire.send(Submit("a", list(range(60)), 8).message())
    wire.until(lambda m: m["t"] == "accepted")
    wire.send({"t": "cancel", "rid": "a"})
    done = wire.until(lambda m: m["t"] in ("done", "error") or is_state("ready")(m))[-1]
    assert done["t"] == "done" and done["reason"] == "cancelled" and done["usage"]["output"] == 0
    gate.touch()
    wire.until(is_state("ready"))
    wire.send({"t": "stats", "n": 1})
    pages = wire.until(lambda m: m["t"] == "stats")[-1]["data"]["pages"]
    assert pages["free"] == pages["total"] - pages["cached"]


def test_what_cannot_be_read_ends_serving_with_its_name(behind, models_dir, tmp_path):
    directory = Path(shutil.copytree(models_dir / "tiny-hybrid", tmp_path / "tiny-hybrid"))
    bank = load_manifest(directory).banks[-1]
    data = bytearray((directory / bank.file).read_bytes())
    for expert in range(bank.experts):
        data[expert * bank.stride + 5] ^= 1
    (directory / bank.file).write_bytes(data)
    wire, gate = behind(directory=directory)
    wire.until(serves)
    wire.send(Submit("a", [7, 300, 12], 8).message())
    error = wire.until(lambda m: m["t"] in ("done", "error"))[-1]
    assert error["t"] == "error" and bank.file in error["message"] and "corrupt" in error["message"]
    wire.send(Submit("b", [7, 300, 12], 8).message())
    gate.touch()
    failed = wire.until(is_state("ready", "failed"))[-1]
    assert failed["state"] == "failed" and bank.file in failed["message"]
    assert wire.process.wait(30) == 5
