"""The worker as the front starts it, on a real (tiny, random) hybrid model."""

import os
import shutil
import time

import pytest

from engine.protocol import EditPoint, Submit
from tests.engine.worker.wire import Wire


@pytest.fixture
def wire(tmp_path):
    made = []

    def start(*flags):
        made.append(Wire(tmp_path / f"run{len(made)}", *flags))
        return made[-1]

    yield start
    for each in made:
        each.close()


def is_state(*names):
    return lambda m: m["t"] == "state" and m["state"] in names


def test_it_loads_with_progress_answers_and_reports(wire, models_dir):
    w = wire("--model", str(models_dir / "tiny-hybrid"), "--kv", "3k", "--threads", "2", "--moe-backend", "cpu")
    states = [m for m in w.until(is_state("ready", "failed")) if m["t"] == "state"]
    assert states[-1]["state"] == "ready" and states[-1]["window"] == states[-1]["kv_tokens"] == 3072
    loading = [m for m in states if m["state"] == "loading"]
    assert loading and loading[-1]["done"] == loading[-1]["total"] > 1 << 20
    assert any(m["state"] == "warming" for m in states)
    prompt = [i * 31 % 900 for i in range(600)]
    points = [EditPoint(200, "head"), EditPoint(590, "prompt")]
    first, done = w.ask("a", prompt, session="s", edit_points=points)
    assert done["usage"]["cached"] == 0 and done["experts"]["hits"] > 0
    again, done = w.ask("b", prompt, session="s", edit_points=points)
    assert again == first and done["usage"]["cached"] == 590 and done["usage"]["replayed"] == 9
    w.send(Submit("c", [7, *prompt], 8, session="t", edit_points=points).message())
    events = [(m["kind"], m.get("class")) for m in w.until(lambda m: m["t"] == "done") if m["t"] == "event"]
    assert ("checkpoint-created", "head") in events, events
    w.send({"t": "stats", "n": 4})
    data = w.until(lambda m: m["t"] == "stats")[-1]["data"]
    settings = data["settings"]
    assert settings["kv_tokens"] == 3072 and settings["threads"] == 2 and settings["moe_backend"] == "cpu"
    assert data["pages"]["total"] * data["pages"]["page_tokens"] >= 3072
    assert data["checkpoints"]["count"] >= 3 and data["checkpoints"]["bytes"] <= data["checkpoints"]["cap_bytes"]
    assert data["arena"]["slabs"]["kv"] >= 1 and data["experts"]["hits"] > 0
    w.send({"t": "shutdown", "drain_s": 5.0})
    assert w.process.wait(120) == 0


def flags(models_dir, folder):
    model = ["--model", str(models_dir / "tiny-hybrid"), "--kv", "12k", "--threads", "2"]
    return [*model, "--hibernate-dir", str(folder), "--hibernate-bytes", str(1 << 30)]


def started(w):
    w.until(is_state("ready"))
    return w


def test_after_a_restart_the_next_turn_of_a_long_session_computes_only_its_new_text(wire, models_dir, tmp_path):
    w = started(wire(*flags(models_dir, tmp_path / "kept")))
    prompt = [i * 31 % 900 for i in range(10_000)]
    points = [EditPoint(4000, "head"), EditPoint(9990, "prompt")]
    reply, _ = w.ask("a", prompt, session="s", edit_points=points)
    w.send({"t": "shutdown", "drain_s": 5.0})
    assert w.process.wait(120) == 0
    again = started(wire(*flags(models_dir, tmp_path / "kept")))
    follow = [*prompt, *reply, *range(20)]
    _, done = again.ask("b", follow, session="s", edit_points=points)
    assert done["usage"]["tier"] == "disk" and done["usage"]["cached"] == 10_000 + len(reply) - 1
    assert done["usage"]["new"] == 21 and done["usage"]["replayed"] == 0
    assert 0 < done["timings"]["restore_s"] < 60


def test_what_was_written_before_a_kill_is_used_after_it(wire, models_dir, tmp_path):
    kept = tmp_path / "kept"
    w = started(wire(*flags(models_dir, kept)))
    prompt = [i * 37 % 900 for i in range(1500)]
    reply, _ = w.ask("a", prompt, session="s")
    deadline = time.monotonic() + 180
    while not list(kept.rglob(f"*-{1500 + len(reply) - 1}.state")):
        assert time.monotonic() < deadline, "an idle line was not written"
        time.sleep(0.05)
    w.process.kill()
    again = started(wire(*flags(models_dir, kept)))
    _, done = again.ask("b", [*prompt, *reply, 5, 6, 7], session="s")
    assert done["usage"]["tier"] == "disk" and done["usage"]["new"] == 4


def test_a_truncated_bank_is_named(wire, models_dir, tmp_path):
    model = tmp_path / "broken"
    shutil.copytree(models_dir / "tiny-hybrid", model)
    bank = sorted(model.glob("experts-*.bin"))[0]
    bank.write_bytes(bank.read_bytes()[:-1])
    w = wire("--model", str(model))
    failed = w.until(is_state("failed", "ready"))[-1]
    assert failed["state"] == "failed" and failed["code"].startswith("FT-E0510") and bank.name in failed["message"]
    assert w.process.wait(120) == 5


EXPERT_BYTES = 24576  # of tiny-hybrid
NOT_USED = "not used here"


@pytest.mark.parametrize(
    ("asked", "effective"),
    [
        (["--moe-slots", "9", "--device-memory", "1g"], {"moe_backend": "cpu", "moe_slots": NOT_USED, "device_memory": NOT_USED}),
        (["--moe-backend", "offload", "--moe-slots", "9"], {"moe_backend": "offload", "moe_slots": 9}),
        (
            ["--host-memory", str(7 * EXPERT_BYTES), "--activations", "f32"],
            {"moe_backend": "offload", "moe_slots": 7, "host_memory": 7 * EXPERT_BYTES, "activations": "f32"},
        ),
        (
            ["--device", "emulated", "--moe-backend", "hybrid", "--moe-slots", "11", "--emulate-fill-gbs", "3"],
            {"device": "emulated", "moe_backend": "hybrid", "moe_slots": 11, "emulate_fill_gbs": 3.0},
        ),
        (
            ["--device", "emulated", "--moe-backend", "fused", "--device-memory", "512m"],
            {"moe_backend": "fused", "moe_slots": 64, "device_memory": 512 << 20},
        ),
    ],
)  # fmt: skip
def test_every_pool_is_what_was_asked_or_said_to_be_unused(wire, models_dir, asked, effective):
    w = started(wire("--model", str(models_dir / "tiny-hybrid"), "--kv", "2k", "--threads", "2", *asked))
    reply, _ = w.ask("a", list(range(40)))
    assert reply
    w.send({"t": "stats", "n": 1})
    data = w.until(lambda m: m["t"] == "stats")[-1]["data"]
    assert {key: data["settings"][key] for key in effective} == effective
    assert data["settings"]["kv_tokens"] == 2048
    assert data["memory"]["planned_bytes"] == data["plan"]["total_bytes"]
    assert data["experts"]["watch"]["slow"] is False


def test_case_51_two_engines_that_want_the_same_cores_say_so(wire, models_dir):
    every = str(len(os.sched_getaffinity(0)))
    model = ["--model", str(models_dir / "tiny-hybrid"), "--kv", "2k", "--threads", every]
    first = started(wire(*model))
    seen = wire(*model).until(is_state("ready"))
    (event,) = [m for m in seen if m["t"] == "event" and m["kind"] == "cores-shared"]
    assert "--threads" in event["message"]
    assert first.process.poll() is None
