"""The sessions, the model and the machines that `bench memory` plays. Fixed before anything was tuned on them.

`python -m engine.bench.memory.trace` writes trace.json, which the benchmark reads: the same turns in every version.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

SEED = 20261130
KEPT = Path(__file__).with_name("trace.json")
SCHEMA = "ft.memory-trace/1"
WINDOW = 65_536
START = 4096
MOST_OUTPUT = 512
PHASES = (4096, 8192, 16_384, 24_576, 32_768, 49_152, WINDOW)  # context at which one phase ends and the next begins


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of 30 layers with 128 experts each, eight of them routed to, each 768 wide with 2048 inputs in 4.5 bits; KV in
    bf16 of four heads of 128. The arena is what a card of 8 GB has left beside its dense weights and the workspace."""

    layers: int = 30
    experts: int = 128
    top_k: int = 8
    expert_bytes: int = 2_654_208
    page_tokens: int = 16
    page_bytes: int = 983_040
    slab_bytes: int = 5_308_416
    slabs: int = 1200

    @property
    def slots_per_slab(self) -> int:
        return self.slab_bytes // self.expert_bytes

    @property
    def tokens_per_slab(self) -> int:
        return self.slab_bytes // self.page_bytes * self.page_tokens


@dataclass(frozen=True, slots=True)
class Throttle:
    """`fill_bytes_per_s` into slots; `step_s` of a decode step that misses nothing; `prefill_tokens_per_s`; copying inside
    the fast tier at `copy_bytes_per_s`."""

    fill_bytes_per_s: float
    step_s: float
    prefill_tokens_per_s: float
    copy_bytes_per_s: float


THROTTLES = {
    "emulated": Throttle(11.8e9, 4.8e-3, 550.0, 100e9),  # eight lanes of PCIe 4 to a card of 256 GB/s
    "disk": Throttle(3.0e9, 31e-3, 120.0, 10e9),  # one NVMe drive under RAM of 40 GB/s
}


@dataclass(frozen=True, slots=True)
class Turn:
    """`prompt` tokens of which the first `shared` are those of the line's last turn (its prompt and answer), then `output`
    tokens are decoded. It comes `gap_s` after the last turn's end. From it on, other programs have `lent` of the arena."""

    line: str
    prompt: int
    shared: int
    output: int
    gap_s: float
    lent: float = 0.0


def growing() -> list[Turn]:
    """One session from 4k to the window: what an agent reads and writes, turn by turn, and nothing else."""
    made = _Maker(random.Random(SEED))  # noqa: S311  (a trace, no secret)
    made.start("main", START)
    while made.fits("main"):
        made.turn("main")
    return made.turns


def changing() -> list[Turn]:
    """A working day: a session that grows, hands work to two subagents, is compacted, loses a quarter of the fast tier
    to another program and gets it back, and another session that begins while the first one rests."""
    made = _Maker(random.Random(SEED + 1))  # noqa: S311
    made.start("main", START)
    made.until("main", 24_576)
    made.start("sub1", 2560)
    made.until("sub1", 14_336)
    made.until("main", 40_960)
    made.lent = 0.25
    made.until("main", 49_152)
    made.lent = 0.0
    made.until("main", 63_000)
    made.compact("main", kept=3072, summary=6144)
    made.until("main", 20_480)
    made.start("sub2", 2560)
    made.until("sub2", 10_240)
    made.until("main", 32_768)
    made.start("other", START, gap_s=900.0)
    made.until("other", 28_672)
    made.until("main", 36_864)
    return made.turns


class _Maker:
    """`lent` holds for the turns made next."""

    def __init__(self, source: random.Random) -> None:
        self.turns: list[Turn] = []
        self.lent = 0.0
        self._random = source
        self._ends: dict[str, int] = {}  # line -> tokens after its last turn

    def start(self, line: str, prompt: int, gap_s: float = 1.0) -> None:
        self._add(line, prompt, 0, gap_s)

    def turn(self, line: str) -> None:
        """A tool's result or, one turn in eight, a message of the user after a pause."""
        user = self._random.random() < 1 / 8
        read = int(min(6000.0, max(40.0, self._random.lognormvariate(6.4, 1.0))))
        gap_s = self._random.uniform(20.0, 90.0) if user else self._random.lognormvariate(0.0, 1.0)
        self._add(line, self._ends[line] + read, self._ends[line], round(gap_s, 3))

    def fits(self, line: str) -> bool:
        return self._ends[line] + 6000 + MOST_OUTPUT <= WINDOW

    def until(self, line: str, tokens: int) -> None:
        while self._ends[line] < tokens and self.fits(line):
            self.turn(line)

    def compact(self, line: str, kept: int, summary: int) -> None:
        self._add(line, kept + summary, kept, 2.0)

    def _add(self, line: str, prompt: int, shared: int, gap_s: float) -> None:
        output = int(min(float(MOST_OUTPUT), max(16.0, self._random.lognormvariate(4.8, 0.8))))
        self.turns.append(Turn(line, prompt, shared, output, gap_s, self.lent))
        self._ends[line] = prompt + output


TRACES: dict[str, Callable[[], list[Turn]]] = {"growing": growing, "changing": changing}


def generate() -> str:
    """The text of trace.json."""
    parts = {
        "schema": SCHEMA,
        "seed": SEED,
        "window": WINDOW,
        "phases": PHASES,
        "shape": asdict(Shape()),
        "throttles": {name: asdict(throttle) for name, throttle in THROTTLES.items()},
    }
    lines = [f'"{name}": {json.dumps(part)}' for name, part in parts.items()]
    for name, make in TRACES.items():
        turns = ",\n  ".join(json.dumps(asdict(turn)) for turn in make())
        lines.append(f'"{name}": [\n  {turns}\n ]')
    return "{" + ",\n ".join(lines) + "\n}\n"


def load(name: str) -> list[Turn]:
    """The turns of a kept trace. Raises KeyError for an unknown name."""
    return [Turn(**turn) for turn in json.loads(KEPT.read_text())[name]]


if __name__ == "__main__":
    KEPT.write_text(generate())
    for name in TRACES:
        turns = load(name)
        most = max(turn.prompt + turn.output for turn in turns)
        sys.stdout.write(f"{name}: {len(turns)} turns, {sum(t.output for t in turns)} tokens decoded, up to {most}\n")
