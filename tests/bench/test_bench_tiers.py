"""The benchmarks of slot policies and of the disk tier: rows from a recorded stream, what sides are asked, a cap that was lost."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STREAM = ROOT / "tests" / "engine" / "experts" / "streams" / "smollm2-128x8.npz"


@pytest.fixture(scope="module", autouse=True)
def bench_folder() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "bench"))
    yield
    sys.path.remove(str(ROOT / "bench"))


def test_replayed_streams_give_rows_beside_the_optimum() -> None:
    command = [sys.executable, str(ROOT / "bench" / "experts_miss.py"), "--replay", str(STREAM), "--quick", "--json"]
    rows = {row["name"]: row for row in json.loads(subprocess.run(command, capture_output=True, check=True).stdout)}
    assert {name.split(".")[2] for name in rows} == {"belady", "frequency", "lru", "s3fifo", "prefill", "blind"}
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["value"] / row["baseline"], rel=2e-3)
        assert row["ratio"] >= 1
        assert "random routers" in row["routing"]
    assert rows["experts.miss.lru.37.smollm2-128x8"]["value"] > rows["experts.miss.frequency.37.smollm2-128x8"]["value"]


class FakeSide:
    """Counts what it is fed: one second, ten major faults, six hits and two misses a token."""

    def __init__(self) -> None:
        self.fed: list[int] = []

    def prefill(self, tokens: list[int]) -> None:
        self.fed = list(tokens)

    def feed(self, tokens: list[int]) -> float:
        self.fed += tokens
        return float(len(tokens))

    def faults(self) -> dict[str, int]:
        return {"major": 10 * len(self.fed), "minor": 0}

    def ask(self, request: dict[str, str]) -> dict[str, int]:
        assert request == {"op": "experts"}
        return {"hits": 6 * len(self.fed), "misses": 2 * len(self.fed)}


def test_counters_are_per_token_and_leave_out_prompt_and_warm_up() -> None:
    import disk

    measured, side = disk.Measured(), FakeSide()
    tokens = list(range(disk.PROMPT_TOKENS + disk.WARM_TOKENS + 3 * 5))
    measured.take(side, tokens, 3, 5, ours=True)  # type: ignore[arg-type]
    assert side.fed == tokens
    assert measured.speeds == [1.0] * 3
    assert {name: measured.mean(name) for name in ("major", "hits", "misses")} == {"major": 10, "hits": 6, "misses": 2}


class Helper:
    def __init__(self, said: str, ended: int | None) -> None:
        self.stdout, self.stdin, self.ended = io.StringIO(said), io.StringIO(), ended

    def poll(self) -> int | None:
        return self.ended

    def wait(self) -> None:
        assert self.stdin.closed


@pytest.mark.parametrize(
    ("said", "ended", "message"),
    [("", 1, "cannot be locked"), ("locked 1", -9, "the cap was lost"), ("locked 1", None, "")],
)
def test_a_cap_that_was_refused_or_lost_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, said: str, ended: int | None, message: str
) -> None:
    import disk

    helper = Helper(said, ended)
    monkeypatch.setattr(disk.subprocess, "Popen", lambda *_, **__: helper)
    if message:
        with pytest.raises(SystemExit, match=message), disk.capped(1 << 30):
            pass
    else:
        with disk.capped(1 << 30):
            pass
    assert helper.stdin.closed


def test_nothing_is_locked_when_little_enough_is_available() -> None:
    import lock_memory

    assert lock_memory.lock(lock_memory.available() + (1 << 30)) == []
