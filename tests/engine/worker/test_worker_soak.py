"""Four sessions that edit, hang up, rest and go on while memory is moved at random and another program takes it and lets it go:
the answers of a run in which nothing happened."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.engine.worker.disturbed import Soak, compare
from tests.engine.worker.hog import Hog
from tests.engine.worker.wire import Wire

SOAK_S = float(os.environ.get("FT_TEST_SOAK_S", "90"))  # for each tier
LONG_S = 900.0  # of the long one: half an hour over both
BESIDE_A_HOG = str(Path(__file__).with_name("worker_beside_a_hog.py"))
FLAGS = ["--threads", "2", "--chunk-tokens", "96", "--max-running-requests", "4"]
EMULATED = "--device emulated --moe-backend offload --device-memory 48m --emulate-fill-gbs 100 --emulate-host-gbs 200"
TIERS = {"emulated": EMULATED.split(), "disk": ["--host-memory", str(40 * 24576), "--kv", "6k"]}
QUIET = ["--threads", "2", "--kv", "32k", "--max-running-requests", "8"]  # all experts in RAM, and room for all
FLAT_BYTES = 16 << 20  # what the largest size of the process may grow by, between the second and the last quarter
LONGEST_PIECE_S = 1.0  # of a move between two steps; a loaded machine may stop us for a while
SPARE_BYTES = 3 << 20  # of the machine, beside what is shared out at the start


def soak(folder: Path, models_dir: Path, tier: str, seconds: float) -> None:
    model = ["--model", str(models_dir / "tiny-hybrid"), *FLAGS, *TIERS[tier]]
    result, hog = folder / "result", Hog(folder / "machine")
    open_ = [hog]
    try:
        busy = Wire(folder / "busy", *model, program=(BESIDE_A_HOG, str(hog.description), str(result)))
        open_.append(busy)
        busy.until(is_ready)
        arena = busy.memory("map")["data"]["arena"]
        shared = sum(arena["split"].values()) * arena["slab_bytes"]
        hog.share(shared + SPARE_BYTES)
        soak = Soak(busy, hog, shared, seed=5)
        start = time.monotonic()
        log = soak.run(seconds)
        assert not log.errors, log.errors[:3]
        done = [turn for turn in log.turns if turn.whole]
        assert len(done) > 10 and len(log.turns) > len(done)
        assert len(log.moves) > 10 and all(move["longest_s"] < LONGEST_PIECE_S for move in log.moves)
        assert max(soak.lent) > 0, "the other program got nothing"
        second, last = (
            max(size for at, size in soak.sizes if quarter <= (at - start) / seconds * 4 < quarter + 1)
            for quarter in (1, 3)
        )
        assert last - second < FLAT_BYTES, f"it grew by {last - second} bytes"
        comes_back(busy, hog)
        busy.send({"t": "stats", "n": 1})
        data = busy.until(lambda m: m["t"] == "stats")[-1]["data"]
        assert data["running"] == data["waiting"] == 0
        busy.send({"t": "shutdown", "drain_s": 5.0})
        assert busy.process.wait(30) == 0 and result.read_text() == "clean", result.read_text()
        quiet = Wire(folder / "quiet", *model[:2], *QUIET)
        open_.append(quiet)
        quiet.until(is_ready)
        compare(quiet, log)
    finally:
        for each in open_:
            each.close()


def comes_back(busy: Wire, hog: Hog) -> None:
    """When the other program is gone and nothing is set by hand, all slabs are shared out again."""
    hog.take(0)
    busy.memory("apply", auto=True)
    deadline = time.monotonic() + 30
    while busy.memory("map")["data"]["arena"]["lent_slabs"]:
        assert time.monotonic() < deadline, "what was lent did not come back"
        time.sleep(0.2)


def is_ready(message: dict) -> bool:
    return message["t"] == "state" and message["state"] == "ready"


@pytest.mark.timeout(300 + 5 * SOAK_S)
@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_lost_and_answers_are_those_of_a_quiet_run(tmp_path, models_dir, tier):
    soak(tmp_path, models_dir, tier, SOAK_S)


@pytest.mark.slow
@pytest.mark.timeout(300 + 5 * LONG_S)
@pytest.mark.parametrize("tier", TIERS)
def test_nor_in_half_an_hour(tmp_path, models_dir, tier):
    soak(tmp_path, models_dir, tier, LONG_S)
