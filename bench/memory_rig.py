"""A real engine in this process whose loop is turned by whoever measures it, and who is its front too: for bench/memory_engine.py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.bench.rows import Row, rounded
from engine.memory.foreign import Spare
from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.protocol import Submit
from engine.weights.manifest import load_manifest
from engine.worker import Worker, WorkerConfig
from engine.worker_engine import load_engine

ROOT = Path(__file__).parent.parent
FILL_GBS, HOST_GBS = 4.0, 16.0  # of the emulated device
DEVICE_BYTES = 640 << 20
CHUNK_TOKENS, RUNNING = 256, 4


class Front:
    """Keeps what a worker tells: when tokens came, what was said of requests, memory and moves."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.failed: list[str] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.moved: list[dict[str, Any]] = []
        self.restarted = 0

    def send(self, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "tokens":
            self.outputs.setdefault(message["rid"], []).extend(message["ids"])
        elif kind in ("done", "error"):
            self.ended.add(message["rid"])
            if kind == "error":
                self.failed.append(message["message"])
        elif kind == "memory":
            self.answers[message["n"]] = message
        elif kind == "event" and message["kind"] == "moved":
            self.moved.append(message)
        elif kind == "event" and message["kind"] == "preempted":
            self.restarted += 1


@dataclass(slots=True)
class Programs:
    """Other programs on this machine: what they want of our memory, in bytes."""

    wanted: int = 0
    lent: int = 0

    def look(self, promised_bytes: int = 0) -> Spare:
        return Spare(0, 0, 0, max(0, self.wanted - self.lent), max(0, self.lent - self.wanted), "the benchmark")


class Rig:
    """A worker without a socket: whoever measures is the front, and turns the loop."""

    def __init__(self, model: Path, tier: str, threads: int, device_bytes: int = DEVICE_BYTES) -> None:
        bank = load_manifest(model).geometry.bank_bytes
        settings = Settings(max_running=RUNNING, chunk_tokens=CHUNK_TOKENS, kv_tokens=None)
        if tier == "emulated":
            settings = replace(settings, device="emulated", device_memory=device_bytes, moe_backend="offload")
        else:
            settings = replace(settings, host_memory=bank // 2)
        options = Options("auto", FILL_GBS if tier == "emulated" else None, HOST_GBS if tier == "emulated" else None)
        config = WorkerConfig(model, model, threads, settings, options)
        self.front, self.programs = Front(), Programs()
        self._worker = Worker(config, self.front)  # type: ignore[arg-type]
        self.plan = plan_model(model, settings).require()
        self.engine = load_engine(config, self.plan, lambda phase, done, total: None)
        self.scheduler = self._worker._assemble(self.plan, self.engine)
        memory = self.scheduler.memory
        assert memory is not None
        self.memory = memory
        memory.others.foreign = self.programs
        self.executor = self.engine.experts.slots
        self.text = self._text(model)
        self._asked = self._requests = 0

    def submit(self, tokens: Sequence[int], output: int, session: str = "", forced: Sequence[int] | None = None) -> str:
        self._requests += 1
        rid = f"r{self._requests}"
        given = None if forced is None else list(forced)
        self.scheduler.submit(Submit(rid, list(tokens), output, session, forced=given))
        return rid

    def order(self, op: str, **asked: Any) -> dict[str, Any]:
        """The answer to a memory message; while it is not there the loop turns."""
        self._asked += 1
        message = {"t": "memory", "n": self._asked, "op": op, "moe_slots": None, "kv_tokens": None}
        self._worker._other({**message, "preset": None, "auto": False, **asked})
        for _ in range(2000):
            if self._asked in self.front.answers:
                break
            self.turn()
        return self.front.answers[self._asked]

    def hang_up(self, rid: str) -> None:
        """Nobody waits for this one any more, nor does anybody else run."""
        self.scheduler.cancel(rid)
        while self.scheduler.running or self.scheduler.waiting:
            self.scheduler.step()

    def turn(self) -> None:
        """What the loop does next: a step, or what is left to do when nothing runs."""
        if not self.scheduler.step():
            self.memory.idle()

    def decode(self, steps: int) -> float:
        """Seconds of the median step, of so many in which somebody decodes."""
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.scheduler.step()
            times.append(time.perf_counter() - start)
        return statistics.mean(sorted(times)[: len(times) * 9 // 10])  # what was disturbed from outside is left out

    def _text(self, model: Path) -> list[int]:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(model / load_manifest(model).tokenizer))
        documents = [ROOT / "ARCHITECTURE.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        return [token for path in documents for token in tokenizer.encode(path.read_text()).ids]


def figure(name: str, value: float, unit: str, baseline: float, samples: int = 1, **more: Any) -> Row:
    """One row, with what it is a ratio of."""
    made: Row = {"name": name, "value": rounded(value), "unit": unit, "baseline": rounded(baseline)}
    return made | {"ratio": round(value / baseline, 5), "samples": samples} | more
