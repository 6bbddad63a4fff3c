"""The memory of a real worker, set by hand while it serves a real (tiny, random) model."""

from pathlib import Path

import jsonschema
import pytest

from engine.protocol import Submit
from ftagent.schemas import schema_of
from tests.engine.worker.wire import Wire

SMALL = (str(Path(__file__).with_name("worker_with_small_slabs.py")),)
EXPERT_BYTES = 24576
TIERS = {
    "emulated": ["--device", "emulated", "--moe-backend", "offload", "--device-memory", "80m"],
    "hybrid": ["--device", "emulated", "--moe-backend", "hybrid", "--device-memory", "80m"],
    "disk": ["--host-memory", str(40 * EXPERT_BYTES)],
}
PROMPT = [i * 31 % 900 for i in range(300)]


@pytest.fixture
def wire(tmp_path, models_dir):
    made = []

    def start(*flags):
        model = ["--model", str(models_dir / "tiny-hybrid"), "--threads", "2"]
        fast = ["--emulate-fill-gbs", "100", "--emulate-host-gbs", "200"] if "emulated" in flags else []
        made.append(Wire(tmp_path / f"run{len(made)}", *model, *fast, *flags, program=SMALL))
        made[-1].until(lambda m: m["t"] == "state" and m["state"] == "ready")
        return made[-1]

    yield start
    for each in made:
        each.close()


def stats(w):
    w.send({"t": "stats", "n": 99})
    return w.until(lambda m: m["t"] == "stats")[-1]["data"]


@pytest.mark.parametrize("tier", TIERS)
def test_sizes_change_while_a_reply_is_decoded(wire, tier):
    w = wire(*TIERS[tier])
    expected, _ = w.ask("before", PROMPT)
    w.send(Submit("long", PROMPT, 200).message())
    first = w.until(lambda m: m["t"] == "tokens")
    for n, (kv, slots) in enumerate([(2000, 20), (4000, 8), (1000, 30), (3000, 12)]):
        answer = w.memory("apply", n=n, kv_tokens=kv, moe_slots=slots)
        jsonschema.validate(answer["data"], schema_of("ft.memory-move/1"))
        then = answer["data"]["then"]
        assert answer["data"]["complete"] and (then["kv_tokens"], then["moe_slots"]) == (kv, slots)
        assert then["window_tokens"] == kv
    seen = w.until(lambda m: m["t"] in ("done", "error") and m["rid"] == "long")
    outputs = [t for m in first + seen if m["t"] == "tokens" for t in m["ids"]]
    assert seen[-1]["t"] == "done" and seen[-1]["usage"]["output"] == 200
    told = [m for m in seen if m["t"] == "state"]
    assert told[-1]["window"] == told[-1]["kv_tokens"] == 3000
    moved = [m for m in seen if m["t"] == "event" and m["kind"] == "moved"]
    assert len(moved) >= 4 and all(m["longest_s"] < 2 for m in moved)
    data = stats(w)
    assert data["settings"]["kv_tokens"] == data["settings"]["window_tokens"] == 3000
    assert data["settings"]["moe_slots"] == data["experts"]["slots"] == 12
    assert data["pages"]["total"] * data["pages"]["page_tokens"] >= 3000
    again, done = w.ask("after", PROMPT)
    assert again == expected and done["usage"]["cached"] > 0
    assert expected == outputs[:8]
    w.send(Submit("too long", [1] * 2990, 20).message())
    assert w.until(lambda m: m["t"] == "error")[-1]["code"].startswith("FT-E0414")
    told = w.memory("map")["data"]
    jsonschema.validate(told, schema_of("ft.memory/1"))
    assert told["kv"]["pinned"] and told["experts"]["pinned"] and not told["auto"]
    assert (told["kv"]["tokens"], told["experts"]["slots"]) == (3000, 12)
    free = w.memory("apply", auto=True)["data"]
    assert free["complete"]
    told = w.memory("map")["data"]
    assert told["auto"] and not told["kv"]["pinned"] and told["kv"]["window_tokens"] > 3000


def test_a_plan_changes_nothing_and_says_what_gives_way(wire):
    w = wire(*TIERS["emulated"])
    before = w.memory("map")["data"]
    answer = w.memory("plan", kv_tokens=1500, moe_slots=10)["data"]
    jsonschema.validate(answer, schema_of("ft.memory-move/1"))
    assert not answer["applied"] and (answer["then"]["kv_tokens"], answer["then"]["moe_slots"]) == (1500, 10)
    assert answer["seconds_to_apply"] >= 0 and answer["why"]
    minimum = w.memory("plan", preset="minimum")["data"]["then"]
    assert minimum["kv_tokens"] == 4096
    assert w.memory("map")["data"]["arena"] == before["arena"]
    w.memory("apply", preset="minimum")
    told = w.memory("map")["data"]
    assert told["kv"]["tokens"] == 4096 and told["preset"] == "minimum" and told["kv"]["pinned"]


def test_what_no_split_can_give_is_refused_with_numbers(wire):
    w = wire(*TIERS["emulated"])
    too_much = w.memory("apply", kv_tokens=10_000_000)["error"]
    assert too_much["code"].startswith("FT-E0400") and "slabs" in too_much["message"] and "room for" in too_much["hint"]
    for slots in (1, 65):
        assert "64" in w.memory("plan", moe_slots=slots)["error"]["message"]
    cpu = wire("--moe-backend", "cpu", "--kv", "2k")
    assert cpu.memory("apply", moe_slots=8)["error"]["message"].startswith("This engine has no expert slots")
    assert cpu.memory("apply", kv_tokens=4096)["data"]["then"]["kv_tokens"] == 4096, "from the room that the plan left"
    assert stats(cpu)["settings"]["kv_tokens"] == 4096
    told = cpu.memory("map")["data"]
    assert told["experts"] is None and told["kv"]["window_tokens"] == 4096


def test_what_runs_keeps_its_memory_and_the_rest_of_a_change_waits(wire):
    w = wire(*TIERS["emulated"])
    long = [i * 17 % 900 for i in range(1500)]
    w.send(Submit("runs", long, 600).message())
    w.until(lambda m: m["t"] == "tokens")
    answer = w.memory("apply", kv_tokens=300)["data"]
    assert answer["complete"] is False and "1" in answer["waits_for"]
    seen = w.until(lambda m: m["t"] in ("done", "error"))
    assert seen[-1]["t"] == "done" and seen[-1]["usage"]["output"] == 600
    told = w.until(lambda m: m["t"] == "state" and m["kv_tokens"] == 300)
    assert told
    next_turn = w.ask("short", [1, 2, 3] * 20)
    assert len(next_turn[0]) == 8
