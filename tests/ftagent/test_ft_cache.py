"""`ft ctl cache`: what is asked, how it is told, and the whole way to a real engine."""

from __future__ import annotations

import json

import pytest

from ftagent.errors import UsageError
from ftagent.local_engine.memory import command_of, map_text, move_text, parse_amount, request_body

MAP = {
    "schema": "ft.memory/1",
    "state": "ready",
    "preset": "agent",
    "auto": True,
    "device": "cpu",
    "bank": "disk",
    "arena": {
        "slab_bytes": 4 << 20,
        "slabs": 1000,
        "free_slabs": 10,
        "lent_slabs": 5,
        "split": {"kv_slabs": 300, "state_slabs": 20, "experts_slabs": 665},
        "start_split": {"kv_slabs": 200, "state_slabs": 20, "experts_slabs": 780},
    },
    "kv": {"tokens": 65536, "used_tokens": 12000, "most_tokens": 200000, "window_tokens": 65536, "pinned": False},
    "states": {"total": 40, "used": 3},
    "experts": {
        "slots": 1330,
        "resident": 1200,
        "total": 1920,
        "least": 8,
        "miss_rate": 0.123,
        "static_slots": 1560,
        "static_miss_rate": 0.098,
        "pinned": False,
    },
    "foreign": {"available_bytes": 3 << 30, "total_bytes": 16 << 30, "limited_by": "free memory"},
    "process": {"resident_bytes": 2 << 30, "high_water_bytes": 3 << 30, "planned_bytes": 3 << 30},
    "moves": [
        {
            "at": 1.0,
            "reason": "a session grows",
            "after": {"kv_slabs": 300, "state_slabs": 20, "experts_slabs": 665},
            "measured": {"before": 10.0, "after": 9.5},
        }
    ],
}
SIDE = {
    "split": {},
    "kv_tokens": 65536,
    "moe_slots": 1330,
    "window_tokens": 65536,
    "decode_tokens_per_s": 10.0,
    "miss_rate": 0.1,
}
MOVE = {
    "applied": False,
    "possible": True,
    "why": "experts give 40 slabs",
    "now": SIDE,
    "then": {**SIDE, "kv_tokens": 98304, "decode_tokens_per_s": None},
    "seconds_to_apply": 0.25,
    "complete": None,
    "waits_for": None,
    "moved": None,
}


def test_amounts_are_spelled_as_everywhere() -> None:
    assert [parse_amount(text, "--kv") for text in ("512", "64k", "64K", "1m", "1_000")] == [
        512,
        65536,
        65536,
        1 << 20,
        1000,
    ]
    for text in ("", "0", "-4", "x", "1.5k", "64kk", "9" * 17 + "m", "9" * 5000):
        with pytest.raises(UsageError, match="--kv") as refused:
            parse_amount(text, "--kv")
        assert len(str(refused.value)) < 120


def test_what_is_asked_is_one_body() -> None:
    assert request_body(None, None, None, False) == {}
    assert request_body("2k", "64k", None, False) == {"moe_slots": 2048, "kv_tokens": 65536}
    assert request_body(None, "64k", "agent", False) == {"kv_tokens": 65536, "preset": "agent"}
    assert request_body(None, None, "auto", False) == request_body(None, None, None, True) == {"auto": True}
    for wrong in (("9", None, None, True), (None, "9", "auto", False), (None, None, "chat", True)):
        with pytest.raises(UsageError):
            request_body(*wrong)
    assert command_of({"moe_slots": 9, "kv_tokens": 4096}) == "ft ctl cache --moe 9 --kv 4096"
    assert command_of({"auto": True}) == "ft ctl cache --auto"


def test_the_table_spells_its_units_out() -> None:
    text = map_text(MAP)
    for words in (
        "1,200/1,330",
        "1,920",
        "slots over all layers",
        "tokens over all sessions",
        "12.3% (9.8% with the split of the start)",
        "12,000/65,536",
        "given back",
        "window     65,536 tokens for one session",
        "the engine (preset agent)",
        "a session grows: kv 300, state 20, experts 665 slabs  10.0 -> 9.5 tokens/s",
        "2.0 GiB, 3.0 GiB at most, planned 3.0 GiB",
    ):
        assert words in text, words
    pinned = map_text({**MAP, "auto": False, "kv": {**MAP["kv"], "pinned": True}, "moves": []})
    assert "you: KV stay as set" in pinned and "set by hand" in pinned and "moved lately" not in pinned
    assert "--moe changes nothing" in map_text(
        {**MAP, "experts": None, "states": None, "foreign": None, "process": None}
    )
    unknown = {**MAP["experts"], "miss_rate": None, "static_miss_rate": None}
    assert "no data" in map_text({**MAP, "experts": unknown})


def test_a_prediction_names_both_sides_and_the_command() -> None:
    text = move_text(MOVE, {"kv_tokens": 98304})
    assert "98,304" in text and "10.0" in text and "no data" in text and "nothing has been changed" in text
    assert "to apply: ft ctl cache --kv 98304" in text
    moved = {"dropped_experts": 7, "evicted_pages": 3, "moved_pages": 2, "seconds": 0.012}
    done = move_text({**MOVE, "applied": True, "complete": False, "waits_for": "requests that run", "moved": moved}, {})
    assert "12 ms" in done and "it waits for requests that run" in done and "to apply" not in done
    assert "it waits for a step" in move_text({**MOVE, "now": None, "then": None, "waits_for": "a step"}, {})


def test_without_an_engine_nonsense_is_2_and_all_else_3(sandbox) -> None:
    assert sandbox.run("ctl", "cache").returncode == 3
    for wrong in (["--kv", "lots"], ["--auto", "--kv", "9k"], ["--preset", "huge"], ["--moe", "0"]):
        done = sandbox.run("ctl", "cache", *wrong)
        assert done.returncode == 2 and done.stderr, wrong


def test_a_real_engine_is_asked_and_changed_and_goes_on(sandbox, models_dir) -> None:
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2"}
    flags = ["--host-memory", "1m", "--preset", "chat"]
    assert sandbox.run("engine", "start", "-q", *flags, timeout=120).returncode == 0
    try:
        shown = sandbox.run("ctl", "cache").stdout
        assert "slots over all layers" in shown and "10,240" in shown
        guess = sandbox.run("ctl", "cache", "--kv", "16k", "--what-if").stdout
        assert "16,384" in guess and "nothing has been changed" in guess
        assert json.loads(sandbox.run("ctl", "cache", "--json").stdout)["kv"]["tokens"] == 10240
        done = json.loads(sandbox.run("ctl", "cache", "--kv", "16k", "--moe", "12", "--json").stdout)
        assert done["then"]["kv_tokens"] == 16384 and done["then"]["moe_slots"] == 12 and done["complete"]
        never = sandbox.run("ctl", "cache", "--kv", "900m")
        assert never.returncode == 2 and never.stderr
        assert sandbox.run("ctl", "cache", "--auto").returncode == 0
        assert sandbox.run("ctl", "cache", "--what-if").returncode == 2
        answer = json.loads(sandbox.run("run", "--json", "--max-output", "4", "hello", timeout=120).stdout)
        assert answer["usage"]["completion_tokens"] > 0
    finally:
        assert sandbox.run("engine", "stop").returncode == 0
