"""What a real engine does when its memory changes hands: `bench/memory.py` runs this file once for each tier.

The model, its weights, the scheduler and every move are real, in this process; the front is left out, so that times are those of the
engine. The emulated device copies at a stated bandwidth; the disk tier reads experts from the file system, around its cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from memory_moves import MODEL, MOVES, SMALL_MODEL, measure_small, moves_rows, together
from memory_rig import CHUNK_TOKENS, ROOT, Rig, figure

from engine.bench.rows import Row, rounded
from engine.experts.curves import Curve
from engine.experts.record import Recorder
from engine.memory.hardware import resident_bytes

SHARES = (0.55, 0.3, 0.8)  # of the slots there are, whose effect is predicted and measured
WARM, MEASURED = 32, 64  # decode steps before a prediction, and of a measurement
ROUNDS = 2  # of all shares, in turn
TAKEN = 0.25  # of the fast tier, which another program wants


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, metavar="DIR", help=f"default: {MODEL}, made below build/bench")
    parser.add_argument("--threads", type=int, default=2)


def rows(tier: str, args: argparse.Namespace) -> list[Row]:
    """Measured in processes of their own, whose memory is the engine's alone: one with the model, and one with the small model
    for many more moves, whose requests are counted together."""
    flags = ["--tier", tier, "--threads", str(args.threads), *(["--quick"] if args.quick else [])]

    def measured(model: Path, *more: str) -> list[Row]:
        command = [sys.executable, __file__, str(model), *flags, *more]
        made: list[Row] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        return made

    made = measured(args.model or made_model(MODEL, "pull", MODEL))
    (small,) = measured(made_model(SMALL_MODEL, SMALL_MODEL), "--small")
    name = f"memory.{tier}.failed"
    return [together(row, small) if row["name"] == name else row for row in made]


def made_model(name: str, *how: str) -> Path:
    folder = ROOT / "build" / "bench"
    if not (folder / name / "ftw.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "engine", "models", *how, "--models-dir", str(folder)]
        subprocess.run(command, stdout=sys.stderr, check=True)
    return folder / name


def measure(model: Path, tier: str, threads: int, quick: bool) -> Iterator[Row]:
    rig = Rig(model, tier, threads)
    yield plan_row(rig, tier)
    start = time.perf_counter()
    parts = {
        "predicted": lambda: predicted_rows(rig, tier, *((SHARES[:2], 1) if quick else (SHARES, ROUNDS))),
        "give_back": lambda: [give_back_row(rig, tier)],
        "moves": lambda: moves_rows(rig, tier, MOVES // 10 if quick else MOVES),
    }
    for name, part in parts.items():
        yield from part()
        start, spent = time.perf_counter(), time.perf_counter() - start
        print(f"{tier}: {name} in {spent:.0f} s", file=sys.stderr)


def plan_row(rig: Rig, tier: str) -> Row:
    """Bytes planned, beside the peak of the first full chunk with all of the planned arena in use."""
    planned, actual = rig.plan.total_bytes, rig.engine.report()["memory"]["actual_bytes"]
    more = {"planned_over_actual": round(planned / actual, 4), "tenants": rig.plan.tenants}
    return figure(f"memory.{tier}.plan", max(planned / actual, actual / planned), "either way", 1.0, **more)


def predicted_rows(rig: Rig, tier: str, shares: Sequence[float], rounds: int) -> Iterator[Row]:
    """Decode rates after moves by hand, beside those predicted right before, of each share the median over the rounds; and what
    learning and asking cost a step."""
    most = rig.memory.mover.most_slots()
    slots = [max(4, int(share * min(most, _slots_now(rig)))) for share in shares] * rounds
    total = WARM + (len(slots) + 1) * (WARM + MEASURED)
    rid = rig.submit(rig.text[:CHUNK_TOKENS], total + 256, "text", rig.text[CHUNK_TOKENS : CHUNK_TOKENS + total + 256])
    rig.decode(2 * WARM)
    while not rig.memory.outlook.known:
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
    yield figure(f"memory.{tier}.predicted", worst, "either way", 1.0, **more)
    rig.order("apply", auto=True)
    step_s = rig.decode(MEASURED)
    yield overhead_row(rig, tier, step_s)
    rig.hang_up(rid)


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
    return figure(f"memory.{tier}.overhead", note_s + look_s / 64, "s", step_s, **more)


def give_back_row(rig: Rig, tier: str) -> Row:
    """Seconds from another program's wish to its memory being free, while a request decodes."""
    times, arena = [], rig.memory.mover.slabs * rig.memory.mover.slab_bytes
    held = []
    rid = rig.submit(rig.text[:CHUNK_TOKENS], 1 << 10, "text", rig.text[CHUNK_TOKENS : CHUNK_TOKENS + (1 << 10)])
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
    rig.hang_up(rid)
    more = {"samples": len(times), "bytes": int(TAKEN * arena), "resident_fell_mb": [round(mb) for mb in held]}
    return figure(f"memory.{tier}.give_back", max(times), "s", 1.0, **more)


def _slots_now(rig: Rig) -> int:
    """Slots that experts could have beside the KV of the text."""
    outlook, mover = rig.memory.outlook, rig.memory.mover
    kv = outlook.kv_slabs(4096)
    return (rig.memory.start.slabs - kv - mover.split.state_slabs) * rig.engine.pools.slots.per_slab


def rounded_all(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tier", choices=("emulated", "disk"), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--small", action="store_true", help="many moves of a model as small as tiny-hybrid")
    args = parser.parse_args()
    what = measure_small if args.small else measure
    print(json.dumps(list(what(args.model, args.tier, args.threads, args.quick))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
