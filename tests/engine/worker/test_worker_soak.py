"""Four sessions that edit, hang up and go on while memory is moved at random: the answers of a run in which nothing happened."""

from __future__ import annotations

import itertools
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.protocol import EditPoint, Sampling, Submit
from tests.engine.worker.wire import Wire

SOAK_S = float(os.environ.get("FT_TEST_SOAK_S", "30"))
SMALL = (str(Path(__file__).with_name("worker_with_small_slabs.py")),)
FLAGS = ["--threads", "2", "--chunk-tokens", "96", "--max-running-requests", "4"]
TIERS = {
    "emulated": [
        "--device",
        "emulated",
        "--moe-backend",
        "offload",
        "--device-memory",
        "80m",
        "--emulate-fill-gbs",
        "100",
        "--emulate-host-gbs",
        "200",
    ],
    "disk": ["--host-memory", str(40 * 24576), "--kv", "6k"],
}
VOCAB = 900
WINDOW = 2000  # of a session, before it is cut
FLAT_BYTES = 48 << 20  # what the process may grow by once it has warmed up


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
    def __init__(self, wire: Wire, seed: int) -> None:
        self.wire, self.rng, self.log = wire, random.Random(seed), Log()
        self.count = itertools.count()
        head = self.text(60)
        self.sessions = [Session(f"s{i}", head + self.text(20 + 30 * i)) for i in range(4)]
        self.by_rid: dict[str, Session] = {}
        self.open_orders: set[int] = set()
        self.resident: list[int] = []

    def text(self, n: int) -> list[int]:
        return [self.rng.randrange(VOCAB) for _ in range(n)]

    def run(self, seconds: float) -> Log:
        until, next_move = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < until or self.by_rid:
            going_on = time.monotonic() < until
            if going_on:
                for session in self.sessions:
                    if session.asked is None:
                        self.ask(session)
                if time.monotonic() >= next_move and not self.open_orders:
                    next_move = time.monotonic() + self.rng.uniform(0.02, 0.4)
                    self.order()
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
        """A random change of the memory, or the map."""
        n = next(self.count)
        asked = {"moe_slots": None, "kv_tokens": None, "preset": None, "auto": False}
        kind = self.rng.choice(["kv", "slots", "both", "preset", "auto", "map"])
        if kind in ("kv", "both"):
            asked["kv_tokens"] = self.rng.choice([2500, 3000, 4500, 6000])
        if kind in ("slots", "both"):
            asked["moe_slots"] = self.rng.randrange(2, 40)
        if kind == "preset":
            asked["preset"] = self.rng.choice(["minimum", "chat", "agent"])
        asked["auto"] = kind == "auto"
        self.open_orders.add(n)
        self.wire.send({"t": "memory", "n": n, "op": "map" if kind == "map" else "apply", **asked})

    def take(self, message: dict) -> None:
        kind, session = message["t"], self.by_rid.get(message.get("rid", ""))
        if kind == "memory":
            self.open_orders.discard(message["n"])
            self.log.refused += "error" in message
            if message.get("data", {}).get("process"):
                self.resident.append(message["data"]["process"]["resident_bytes"])
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


@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_lost_and_answers_are_those_of_a_quiet_run(tmp_path, models_dir, tier):
    model = ["--model", str(models_dir / "tiny-hybrid"), *FLAGS, *TIERS[tier]]
    wires = []
    try:
        for name in ("busy", "quiet"):
            wires.append(Wire(tmp_path / name, *model, program=SMALL))
        busy, quiet = wires
        for wire in wires:
            wire.until(lambda m: m["t"] == "state" and m["state"] == "ready")
        soak = Soak(busy, seed=5)
        soak.run(SOAK_S / 4)
        half = busy.memory("map")["data"]["process"]["resident_bytes"]
        log = soak.run(SOAK_S * 3 / 4)
        assert not log.errors, log.errors[:3]
        done = [turn for turn in log.turns if turn[3]]
        assert len(done) > 10 and len(log.turns) > len(done) and len(log.moves) > 10
        # At rest everything adds up, and the process is as large as it was.
        told = busy.memory("map")["data"]
        assert told["process"]["resident_bytes"] - half < FLAT_BYTES
        busy.send({"t": "stats", "n": 1})
        data = busy.until(lambda m: m["t"] == "stats")[-1]["data"]
        assert data["running"] == data["waiting"] == 0
        assert data["arena"]["slabs"]["kv"] <= told["arena"]["split"]["kv_slabs"]
        # The same requests, one after the other, in a worker whose memory nobody touches.
        for n, (tokens, max_tokens, output, whole) in enumerate(log.turns):
            quiet.send(Submit(f"q{n}", tokens, max_tokens, sampling=Sampling(temperature=0.0)).message())
            seen = quiet.until(lambda m: m["t"] in ("done", "error"))
            expected = [t for m in seen if m["t"] == "tokens" for t in m["ids"]]
            assert output == (expected if whole else expected[: len(output)]), f"turn {n} of {len(log.turns)}"
    finally:
        for wire in wires:
            wire.close()
