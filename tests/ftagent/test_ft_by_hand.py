"""Sizes of memory that were set by hand are there again after a restart of the real engine, until it decides by itself again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FROM_DISK = ("--host-memory", str(40 * 24576), "--kv", "6k")  # half of the experts have slots
TIMEOUT_S = 240


@pytest.fixture
def real(sandbox, models_dir: Path) -> Iterator:
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2"}
    yield sandbox
    assert sandbox.run("engine", "stop").returncode == 0


def cache(box, *flags: str) -> dict[str, Any]:
    done = box.run("ctl", "cache", *flags, "--json", timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restarted(box, *flags: str) -> dict[str, Any]:
    """The map of the engine that follows; another process."""
    before = json.loads((box.runtime / "engine.json").read_text())["pid"]
    done = box.run("engine", "restart", "-q", *flags, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert json.loads((box.runtime / "engine.json").read_text())["pid"] != before
    return cache(box)


def sizes(told: dict[str, Any]) -> tuple[int, int, bool, bool]:
    kv, experts = told["kv"], told["experts"]
    return kv["tokens"], experts["slots"], kv["pinned"], experts["pinned"]


@pytest.mark.timeout(3 * TIMEOUT_S)
def test_sizes_set_by_hand_outlive_a_restart_until_auto(real) -> None:
    assert real.run("engine", "start", "-q", *FROM_DISK, timeout=TIMEOUT_S).returncode == 0
    begun = sizes(cache(real))
    set_ = cache(real, "--kv", "3000", "--moe", "12")
    assert set_["then"]["kv_tokens"] == 3000 and set_["then"]["moe_slots"] == 12
    by_hand = sizes(cache(real))
    assert by_hand == (3000, 12, True, True) != begun

    assert sizes(restarted(real, *FROM_DISK)) == by_hand, "started with the same flags"
    answer = json.loads(real.run("run", "--json", "--max-output", "4", "hello", timeout=TIMEOUT_S).stdout)
    assert answer["usage"]["completion_tokens"] > 0

    cache(real, "--auto")
    assert sizes(restarted(real, *FROM_DISK)) == begun
