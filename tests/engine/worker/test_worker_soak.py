"""Four sessions that edit, hang up and go on while memory is moved at random and another program takes it and lets it go: the
answers of a run in which nothing happened."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.protocol import EditPoint, Sampling, Submit
from tests.engine.worker.wire import Wire

SOAK_S = float(os.environ.get("FT_TEST_SOAK_S", "90"))  # for each tier
LONG_S = 900.0  # of the long one
SMALL = (str(Path(__file__).with_name("worker_with_small_slabs.py")),)
BESIDE_A_HOG = str(Path(__file__).with_name("worker_beside_a_hog.py"))
FLAGS = ["--threads", "2", "--chunk-tokens", "96", "--max-running-requests", "4"]
TIERS = {
    "emulated": [
        "--device",
        "emulated",
        "--moe-backend",
        "offload",
        "--device-memory",
        "48m",
        "--emulate-fill-gbs",
        "100",
        "--emulate-host-gbs",
        "200",
    ],
    "disk": ["--host-memory", str(40 * 24576), "--kv", "6k"],
}
VOCAB = 900
WINDOW = 2000  # of a session, before it is cut
FLAT_BYTES = 16 << 20  # what the largest size of the process may grow by, between the second and the last quarter
LONGEST_PIECE_S = 1.0  # of a move between two steps; a loaded machine may stop us for a while
SPARE_BYTES = 3 << 20  # of the machine, beside what is shared out at the start
REPLAYED_TOGETHER = 4


HOG = """
import mmap, sys
print("calm", flush=True)
held = None
for line in sys.stdin:
    if held is not None:
        held.close()
    size = int(line)
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if size else None
    for at in range(0, size, 4096):
        held[at] = 1
    print("held", size, flush=True)
"""


class Hog:
    """Another program on the worker's machine: a real process, which really takes what it is told to. `shared` are the bytes
    that it and the worker have together; they are set when the worker has told how much it shares out."""

    def __init__(self, description: Path) -> None:
        self.description, self.holds = description, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "calm\n"
        status = Path(f"/proc/{self.process.pid}/status").read_text().split()
        self.calm = int(status[status.index("RssAnon:") + 1]) * 1024
        self.share(1 << 30)

    def share(self, n_bytes: int) -> None:
        told = {"bytes": n_bytes, "pid": self.process.pid, "calm_bytes": self.calm}
        new = self.description.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.description)

    def take(self, n_bytes: int) -> None:
        """Hold so much from now on; 0: nothing."""
        assert n_bytes < 2 << 30
        self.process.stdin.write(f"{n_bytes}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"held {n_bytes}\n"
        self.holds = n_bytes

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Session:
    """One conversation. `asked` is the request under way."""

    name: str
    line: list[int]
    asked: Submit | None = None
    output: list[int] = field(default_factory=list)
    hangs_up_after: int | None = None


@dataclass
class Log:
    """Every request that was answered: its prompt, and what came of it."""

    turns: list[tuple[list[int], int, list[int], bool]] = field(default_factory=list)  # prompt, max, output, whole
    errors: list[dict] = field(default_factory=list)
    moves: list[dict] = field(default_factory=list)
    refused: int = 0


class Soak:
    """`shared` are the bytes that the worker shares out, of which `hog` takes up to three quarters."""

    def __init__(self, wire: Wire, hog: Hog, shared: int, seed: int) -> None:
        self.wire, self.hog, self.shared = wire, hog, shared
        self.rng, self.log = random.Random(seed), Log()
        self.count = itertools.count()
        head = self.text(60)
        self.sessions = [Session(f"s{i}", head + self.text(20 + 30 * i)) for i in range(4)]
        self.by_rid: dict[str, Session] = {}
        self.open_orders: set[int] = set()
        self.sizes: list[tuple[float, int]] = []  # (when, bytes of the process)
        self.lent: list[int] = []  # slabs, whenever the map was asked for

    def text(self, n: int) -> list[int]:
        return [self.rng.randrange(VOCAB) for _ in range(n)]

    def run(self, seconds: float) -> Log:
        start = time.monotonic()
        until, next_move, next_hog, next_map = start + seconds, start, start, start
        while time.monotonic() < until or self.by_rid:
            going_on = time.monotonic() < until
            if going_on:
                for session in self.sessions:
                    if session.asked is None:
                        self.ask(session)
                if time.monotonic() >= next_move and not self.open_orders:
                    next_move = time.monotonic() + self.rng.uniform(0.02, 0.4)
                    self.order()
                if time.monotonic() >= next_map:
                    next_map = time.monotonic() + 0.25
                    self.wire.send({"t": "memory", "n": next(self.count), "op": "map"})
                if time.monotonic() >= next_hog:
                    next_hog = time.monotonic() + self.rng.uniform(1.0, 4.0)
                    self.hog.take(0 if self.hog.holds else self.rng.randrange(self.shared // 4, self.shared * 3 // 4))
            self.take(self.wire.until(lambda m: True)[0])
        return self.log

    def ask(self, session: Session) -> None:
        rid = f"r{next(self.count)}"
        max_tokens = self.rng.choice([1, 8, 24, 60])
        points = [EditPoint(60, "head"), EditPoint(len(session.line), "prompt")]
        session.asked = Submit(rid, list(session.line), max_tokens, session.name, points, Sampling(temperature=0.0))
        session.output = []
        session.hangs_up_after = self.rng.randrange(0, max_tokens + 1) if self.rng.random() < 0.25 else None
        self.by_rid[rid] = session
        self.wire.send(session.asked.message())
        if session.hangs_up_after == 0:
            self.wire.send({"t": "cancel", "rid": rid})

    def order(self) -> None:
        """A random change of the memory."""
        n = next(self.count)
        asked = {"moe_slots": None, "kv_tokens": None, "preset": None, "auto": False}
        kind = self.rng.choice(["kv", "slots", "both", "preset", "auto", "auto"])
        if kind in ("kv", "both"):
            asked["kv_tokens"] = self.rng.choice([2500, 3000, 4500, 6000])
        if kind in ("slots", "both"):
            asked["moe_slots"] = self.rng.randrange(2, 40)
        if kind == "preset":
            asked["preset"] = self.rng.choice(["minimum", "chat", "agent"])
        asked["auto"] = kind == "auto"
        self.open_orders.add(n)
        self.wire.send({"t": "memory", "n": n, "op": "apply", **asked})

    def take(self, message: dict) -> None:
        kind, session = message["t"], self.by_rid.get(message.get("rid", ""))
        if kind == "memory":
            self.open_orders.discard(message["n"])
            self.log.refused += "error" in message
            if message.get("data", {}).get("process"):
                self.sizes.append((time.monotonic(), message["data"]["process"]["resident_bytes"]))
                self.lent.append(message["data"]["arena"]["lent_slabs"])
        elif kind == "event" and message["kind"] == "moved":
            self.log.moves.append(message)
        elif session is not None and kind == "tokens":
            session.output += message["ids"]
            if session.hangs_up_after is not None and len(session.output) == session.hangs_up_after:
                self.wire.send({"t": "cancel", "rid": message["rid"]})
        elif session is not None and kind in ("done", "error"):
            self.end(session, message)

    def end(self, session: Session, message: dict) -> None:
        submit, rng = session.asked, self.rng
        del self.by_rid[submit.rid]
        session.asked = None
        if message["t"] == "error":
            self.log.errors.append(message)
            if message["code"].startswith(("FT-E0413", "FT-E0414")):  # a smaller window was set by hand meanwhile
                self.log.errors.pop()
                session.line = session.line[:200]
            return
        self.log.turns.append((submit.tokens, submit.max_tokens, session.output, message["reason"] != "cancelled"))
        line = submit.tokens + session.output + self.text(rng.randrange(1, 60))
        if rng.random() < 0.3:  # the agent edits what it sent before
            line = line[: rng.randrange(60, len(line))] + self.text(rng.randrange(1, 40))
        session.line = line if len(line) < WINDOW - 100 else line[:60] + line[-300:]


def soak(folder: Path, models_dir: Path, tier: str, seconds: float) -> None:
    model = ["--model", str(models_dir / "tiny-hybrid"), *FLAGS, *TIERS[tier]]
    result, hog = folder / "result", Hog(folder / "machine")
    open_ = [hog]
    try:
        busy = Wire(folder / "busy", *model, program=(BESIDE_A_HOG, str(hog.description), str(result)))
        open_.append(busy)
        quiet = Wire(folder / "quiet", *model, program=SMALL)
        open_.append(quiet)
        for wire in (busy, quiet):
            wire.until(is_ready)
        arena = busy.memory("map")["data"]["arena"]
        shared = sum(arena["split"].values()) * arena["slab_bytes"]
        hog.share(shared + SPARE_BYTES)
        soak = Soak(busy, hog, shared, seed=5)
        start = time.monotonic()
        log = soak.run(seconds)
        assert not log.errors, log.errors[:3]
        done = [turn for turn in log.turns if turn[3]]
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


def compare(quiet: Wire, log: Log) -> None:
    """The same requests in a worker whose memory nobody touches."""
    waiting, outputs = list(enumerate(log.turns))[::-1], {}
    while waiting or outputs:
        while waiting and len(outputs) < REPLAYED_TOGETHER:
            n, (tokens, max_tokens, _, _) = waiting.pop()
            outputs[f"q{n}"] = []
            quiet.send(Submit(f"q{n}", tokens, max_tokens, sampling=Sampling(temperature=0.0)).message())
        message = quiet.until(lambda m: m["t"] in ("tokens", "done", "error"))[-1]
        assert message["t"] != "error", message
        if message["t"] == "tokens":
            outputs[message["rid"]] += message["ids"]
            continue
        _, _, output, whole = log.turns[int(message["rid"][1:])]
        expected = outputs.pop(message["rid"])
        assert output == (expected if whole else expected[: len(output)]), f"{message['rid']} of {len(log.turns)}"


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
