"""Sessions that edit, hang up and go on in a worker whose memory is moved at random, beside a program that takes it and lets it go,
and the same requests in one that nobody disturbs."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from dataclasses import dataclass, field

from engine.protocol import EditPoint, Sampling, Submit
from tests.engine.worker.hog import Hog
from tests.engine.worker.wire import Wire

VOCAB = 900
WINDOW = 2000  # of a session, before it is cut
LOOK_S = 0.05


@dataclass
class Session:
    """One conversation. `asked` is the request under way."""

    name: str
    line: list[int]
    asked: Submit | None = None
    output: list[int] = field(default_factory=list)
    hangs_up_after: int | None = None
    rests_until: float = 0.0


@dataclass(frozen=True)
class Turn:
    """What was asked and what came of it; not `whole` when the client hung up."""

    asked: Submit
    output: list[int]
    whole: bool


@dataclass
class Log:
    """Every request that was answered, in the order of their ends."""

    turns: list[Turn] = field(default_factory=list)
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
                    if session.asked is None and time.monotonic() >= session.rests_until:
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
            if self.wire.comes(LOOK_S):
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
        rest_s = rng.choice([0.0, 0.0, rng.uniform(0.0, 0.3), rng.uniform(0.5, 2.0)])  # a tool runs, a person reads
        session.rests_until = time.monotonic() + rest_s
        if message["t"] == "error":
            self.log.errors.append(message)
            if message["code"].startswith(("FT-E0413", "FT-E0414")):  # a smaller window was set by hand meanwhile
                self.log.errors.pop()
                session.line = session.line[:200]
            return
        self.log.turns.append(Turn(submit, session.output, message["reason"] != "cancelled"))
        line = submit.tokens + session.output + self.text(rng.randrange(1, 60))
        if rng.random() < 0.3:  # the agent edits what it sent before
            line = line[: rng.randrange(60, len(line))] + self.text(rng.randrange(1, 40))
        session.line = line if len(line) < WINDOW - 100 else line[:60] + line[-300:]


def compare(quiet: Wire, log: Log) -> None:
    """The same requests in a worker whose memory nobody touches, each session's in their order: it computes what is new of them.
    Of an answer that nobody waited for, as much as came is asked for."""
    waiting: dict[str, deque[Turn]] = {}
    for turn in log.turns:
        if turn.output:
            waiting.setdefault(turn.asked.session, deque()).append(turn)
    outputs: dict[str, list[int]] = {}
    for session in waiting:
        _ask(quiet, session, waiting[session][0], outputs)
    while outputs:
        message = quiet.until(lambda m: m["t"] in ("tokens", "done", "error"))[-1]
        assert message["t"] != "error", message
        session = message["rid"]
        if message["t"] == "tokens":
            outputs[session] += message["ids"]
            continue
        turn = waiting[session].popleft()
        left = f"{len(waiting[session])} turns before the end of {session}"
        assert outputs.pop(session) == turn.output, left
        if waiting[session]:
            _ask(quiet, session, waiting[session][0], outputs)


def _ask(quiet: Wire, session: str, turn: Turn, outputs: dict[str, list[int]]) -> None:
    outputs[session] = []
    tokens = turn.asked.max_tokens if turn.whole else len(turn.output)
    asked = Submit(session, turn.asked.tokens, tokens, session, turn.asked.edit_points, turn.asked.sampling)
    quiet.send(asked.message())
