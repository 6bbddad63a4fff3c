"""What a real engine does when its memory changes hands: `bench/memory.py` runs this file once for each tier.

The model, its weights, the scheduler and every move are real, in this process; the front is left out, so that times are those of the
engine. The emulated device copies at a stated bandwidth; the disk tier reads experts from the file system, around its cache.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from memory_rig import CHUNK_TOKENS, ROOT, RUNNING, Rig

from engine.bench.rows import Row, rounded
from engine.experts.curves import Curve
from engine.experts.record import Recorder
from engine.memory.hardware import resident_bytes

MODEL = "smollm2-moe"
SEED = 20261130
SHARES = (0.55, 0.3, 0.8, 0.4)  # of the slots there are, whose effect is predicted and measured
WARM, MEASURED = 48, 96  # decode steps before a prediction, and of a measurement
ROUNDS = 3  # of all shares, in turn
MOVES, STEPS_BETWEEN = 1000, 2
PARTS = 5  # of the moves: of the longest pause in each, the median counts, and the longest of all is told beside it
PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS = 6, 200, 32
TAKEN = 0.25  # of the fast tier, which another program wants


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, metavar="DIR", help=f"default: {MODEL}, made below build/bench")
    parser.add_argument("--threads", type=int, default=2)


def rows(tier: str, args: argparse.Namespace) -> list[Row]:
    """Measured in a process of its own, whose memory is the engine's alone."""
    command = [sys.executable, __file__, str(args.model or made_model()), "--tier", tier]
    command += ["--threads", str(args.threads), *(["--quick"] if args.quick else [])]
    made: list[Row] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return made


def made_model() -> Path:
    folder = ROOT / "build" / "bench"
    if not (folder / MODEL / "ftw.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "engine", "models", "pull", MODEL, "--models-dir", str(folder)]
        subprocess.run(command, stdout=sys.stderr, check=True)
    return folder / MODEL


def measure(model: Path, tier: str, threads: int, quick: bool) -> Iterator[Row]:
    rig = Rig(model, tier, threads)
    yield plan_row(rig, tier)
    start = time.perf_counter()
    parts = {
        "predicted": lambda: predicted_rows(rig, tier, *((SHARES[:2], 1) if quick else (SHARES, ROUNDS))),
        "give_back": lambda: [give_back_row(rig, tier)],
        "moves": lambda: moves_rows(rig, tier, MOVES // 20 if quick else MOVES),
    }
    for name, part in parts.items():
        yield from part()
        start, spent = time.perf_counter(), time.perf_counter() - start
        print(f"{tier}: {name} in {spent:.0f} s", file=sys.stderr)


def plan_row(rig: Rig, tier: str) -> Row:
    """Bytes planned, beside the peak of the first full chunk with all of the planned arena in use."""
    planned, actual = rig.plan.total_bytes, rig.engine.report()["memory"]["actual_bytes"]
    more = {"planned_over_actual": round(planned / actual, 4), "tenants": rig.plan.tenants}
    return _row(f"memory.{tier}.plan", max(planned / actual, actual / planned), "either way", 1.0, **more)


def predicted_rows(rig: Rig, tier: str, shares: Sequence[float], rounds: int) -> Iterator[Row]:
    """Decode rates after moves by hand, beside those predicted right before, of each share the median over the rounds; and what
    learning and asking cost a step."""
    most = rig.memory.mover.most_slots()
    slots = [max(4, int(share * min(most, _slots_now(rig)))) for share in shares] * rounds
    total = WARM + (len(slots) + 1) * (WARM + MEASURED)
    rig.submit(rig.text[:CHUNK_TOKENS], total + 64, "text", rig.text[CHUNK_TOKENS : CHUNK_TOKENS + total + 64])
    for _ in range(2 * WARM):
        rig.scheduler.step()
    ratios: dict[int, list[float]] = {}
    pairs = []
    for n in slots:
        told = rig.order("plan", moe_slots=n)["data"]
        rig.order("apply", moe_slots=n)
        rig.decode(WARM)
        rate = 1 / rig.decode(MEASURED)
        predicted = told["then"]["decode_tokens_per_s"]
        ratios.setdefault(n, []).append(predicted / rate)
        pairs.append([n, rounded(predicted), rounded(rate)])
    medians = [statistics.median(found) for found in ratios.values()]
    worst = max(max(ratio, 1 / ratio) for ratio in medians)
    more = {"samples": len(slots), "slots_predicted_measured": pairs, "predicted_over_measured": rounded_all(medians)}
    yield _row(f"memory.{tier}.predicted", worst, "either way", 1.0, **more)
    rig.order("apply", auto=True)
    step_s = rig.decode(MEASURED)
    yield overhead_row(rig, tier, step_s)
    while rig.scheduler.running or rig.scheduler.waiting:
        rig.scheduler.step()


def overhead_row(rig: Rig, tier: str, step_s: float) -> Row:
    """Processor time of noting one step's routing and of one 64th of a look at the split, beside a step."""
    executor = rig.executor
    layers, experts = executor.table.slot_of.shape
    before, executor.record = executor.record, Recorder(layers, experts)
    rig.scheduler.step()
    stream, executor.record = executor.record.stream(), before
    accesses = [(layer, np.ascontiguousarray(ids, dtype=np.int32)) for layer, ids in stream]
    curve, rounds = Curve(layers, experts), 2000
    start = time.process_time()
    for _ in range(rounds):
        for layer, ids in accesses:
            curve.note(layer, ids)
    note_s = (time.process_time() - start) / rounds
    view, start = rig.memory.view(rig.scheduler.running), time.process_time()
    for _ in range(200):
        rig.memory.balancer.propose(view)
    look_s = (time.process_time() - start) / 200
    more = {"note_us": rounded(note_s * 1e6), "look_us": rounded(look_s * 1e6), "layers": layers}
    return _row(f"memory.{tier}.overhead", note_s + look_s / 64, "s", step_s, **more)


def give_back_row(rig: Rig, tier: str) -> Row:
    """Seconds from another program's wish to its memory being free, while a request decodes."""
    times, arena = [], rig.memory.mover.slabs * rig.memory.mover.slab_bytes
    held = []
    rig.submit(rig.text[:CHUNK_TOKENS], 1 << 10, "text", rig.text[CHUNK_TOKENS : CHUNK_TOKENS + (1 << 10)])
    rig.decode(64)
    for _ in range(3):
        rig.programs.lent = 0
        rig.programs.wanted = int(TAKEN * arena)
        before, start = resident_bytes(), time.perf_counter()
        while rig.memory.lent * rig.memory.mover.slab_bytes < rig.programs.wanted or rig.memory.mover.target:
            rig.scheduler.step()
            rig.programs.lent = rig.memory.lent * rig.memory.mover.slab_bytes
        times.append(time.perf_counter() - start)
        held.append((before - resident_bytes()) / 1e6)
        rig.programs.lent, rig.programs.wanted = rig.memory.lent * rig.memory.mover.slab_bytes, 0
        while rig.memory.lent or rig.memory.mover.target:
            rig.scheduler.step()
            rig.programs.lent = rig.memory.lent * rig.memory.mover.slab_bytes
        rig.decode(64)
    while rig.scheduler.running:
        rig.scheduler.step()
    more = {"samples": len(times), "bytes": int(TAKEN * arena), "resident_fell_mb": [round(mb) for mb in held]}
    return _row(f"memory.{tier}.give_back", max(times), "s", 1.0, **more)


def moves_rows(rig: Rig, tier: str, moves: int) -> Iterator[Row]:
    """Random sizes by hand while requests run: nothing fails and answers are those of a run without moves."""
    source = random.Random(SEED)
    prompts = [rig.text[at : at + PROMPT_TOKENS] for at in range(5000, 5000 + PROMPTS * 500, 500)]
    expected = answers(rig, prompts)
    mover = rig.memory.mover
    least, slabs = mover.least(), rig.memory.start.slabs
    kv_least = RUNNING * (PROMPT_TOKENS + OUTPUT_TOKENS) + 2 * CHUNK_TOKENS
    first, restarted = len(rig.front.moved), rig.front.restarted
    waiting: dict[str, int] = {}
    wrong, steps = 0, []
    while len(rig.front.moved) - first < moves:
        while len(waiting) < RUNNING:
            i = source.randrange(PROMPTS)
            waiting[rig.submit(prompts[i], OUTPUT_TOKENS)] = i
        experts = source.randint(least.experts_slabs, slabs - rig.memory.outlook.kv_slabs(kv_least))
        kv = rig.memory.outlook.kv_tokens(slabs - experts - mover.split.state_slabs)
        rig._asked += 1
        size = (
            {"kv_tokens": source.randint(kv_least, kv)}
            if source.random() < 0.5
            else {"moe_slots": experts * rig.engine.pools.slots.per_slab}
        )
        message = {"t": "memory", "n": rig._asked, "op": "apply", "moe_slots": None, "kv_tokens": None}
        auto = source.random() < 0.2
        rig._worker._other({**message, "preset": None, "auto": auto, **({} if auto else size)})
        for _ in range(source.randint(1, 2 * STEPS_BETWEEN)):
            start = time.perf_counter()
            rig.turn()
            steps.append(time.perf_counter() - start)
        for rid in [rid for rid in waiting if rid in rig.front.ended]:
            wrong += rig.front.outputs.get(rid) != expected[waiting.pop(rid)]
    rig.order("apply", auto=True)
    made = rig.front.moved[first:]
    longest, size = [move["longest_s"] for move in made], -(-len(made) // PARTS)
    pause_s = statistics.median(max(longest[at : at + size]) for at in range(0, len(made), size))
    step_s = statistics.median(steps)
    failed = len(rig.front.failed) + wrong + (rig.front.restarted - restarted)
    more = {"errors": rig.front.failed[:3], "wrong_answers": wrong, "restarted": rig.front.restarted - restarted}
    yield _row(f"memory.{tier}.failed", failed, "requests", len(made), samples=len(made), **more)
    more = {"longest_ms": round(max(longest) * 1e3, 2), "step_ms": round(step_s * 1e3, 2), "parts": PARTS}
    yield _row(f"memory.{tier}.pause", pause_s / step_s, "steps", 1.0, samples=len(made), **more)


def answers(rig: Rig, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of a run in which nothing is moved by hand, one request at a time."""
    made = []
    for prompt in prompts:
        rid = rig.submit(prompt, OUTPUT_TOKENS)
        while rid not in rig.front.ended:
            rig.scheduler.step()
        made.append(rig.front.outputs[rid])
    return made


def _slots_now(rig: Rig) -> int:
    """Slots that experts could have beside the KV of the text."""
    outlook, mover = rig.memory.outlook, rig.memory.mover
    kv = outlook.kv_slabs(4096)
    return (rig.memory.start.slabs - kv - mover.split.state_slabs) * rig.engine.pools.slots.per_slab


def rounded_all(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def _row(name: str, value: float, unit: str, baseline: float, samples: int = 1, **more: Any) -> Row:
    made: Row = {"name": name, "value": rounded(value), "unit": unit, "baseline": rounded(baseline)}
    return made | {"ratio": round(value / baseline, 5), "samples": samples} | more


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tier", choices=("emulated", "disk"), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(json.dumps(list(measure(args.model, args.tier, args.threads, args.quick))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
