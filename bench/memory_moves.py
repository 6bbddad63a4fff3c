"""Sizes of memory set at random while requests run: what fails, what is answered otherwise, and how long decoding pauses.

For bench/memory_engine.py. Pauses are those of the large model; most moves are those of a small one, which has recurrent layers, so
that states move too.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from memory_rig import CHUNK_TOKENS, RUNNING, Rig, figure

from engine.bench.rows import Row
from engine.memory import planner

MODEL, SMALL_MODEL = "smollm2-moe", "tiny-hybrid"
MOVES, SMALL_MOVES = 120, 1000
SMALL_BYTES, SMALL_SLAB_BYTES = 48 << 20, 120 << 10
SEED = 20261130
MOST_BETWEEN = 2  # turns of the loop between two orders
PARTS = 5  # of the moves: of the longest pause in each, the median counts, and the longest of all is told beside it
PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS = 6, 200, 32


def measure_small(model: Path, tier: str, threads: int, quick: bool) -> list[Row]:
    """Moves between slabs so small that each tenant of the small model has many."""
    planner.MIN_SLAB_BYTES = SMALL_SLAB_BYTES
    rig = Rig(model, tier, threads, SMALL_BYTES)
    start = time.perf_counter()
    made = [
        row for row in moves_rows(rig, tier, SMALL_MOVES // 20 if quick else SMALL_MOVES) if "failed" in row["name"]
    ]
    print(f"{tier}: moves of the small model in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return made


def together(row: Row, small: Row) -> Row:
    """Requests and moves of two models."""
    moves, failed = row["samples"] + small["samples"], row["value"] + small["value"]
    of = {"moves_of": {MODEL: row["samples"], SMALL_MODEL: small["samples"]}}
    more = {key: row[key] + small[key] for key in ("errors", "wrong_answers", "restarted", "requests")}
    return figure(row["name"], failed, "requests", moves, samples=moves, **more, **of)


def moves_rows(rig: Rig, tier: str, moves: int) -> Iterator[Row]:
    """Random sizes by hand while requests run: nothing fails and answers are those of a run without moves."""
    source = random.Random(SEED)
    prompts = [rig.text[at : at + PROMPT_TOKENS] for at in range(5000, 5000 + PROMPTS * 500, 500)]
    expected = answers(rig, prompts)
    mover = rig.memory.mover
    least, slabs = mover.least(), rig.memory.start.slabs
    kv_least = RUNNING * (PROMPT_TOKENS + OUTPUT_TOKENS) + 2 * CHUNK_TOKENS
    first, restarted = len(rig.front.moved), rig.front.restarted
    waiting, answered = dict[str, int](), len(rig.front.ended)
    wrong, steps = 0, []
    while len(rig.front.moved) - first < moves:
        while len(waiting) < RUNNING:
            i = source.randrange(PROMPTS)
            waiting[rig.submit(prompts[i], OUTPUT_TOKENS)] = i
        left = slabs - mover.split.state_slabs
        experts = source.randint(least.experts_slabs, left - rig.memory.outlook.kv_slabs(kv_least))
        kv = rig.memory.outlook.kv_tokens(left - experts)
        rig._asked += 1
        size = (
            {"kv_tokens": source.randint(kv_least, kv)}
            if source.random() < 0.5
            else {"moe_slots": experts * rig.engine.pools.slots.per_slab}
        )
        message = {"t": "memory", "n": rig._asked, "op": "apply", "moe_slots": None, "kv_tokens": None}
        auto = source.random() < 0.2
        rig._worker._other({**message, "preset": None, "auto": auto, **({} if auto else size)})
        for _ in range(source.randint(1, MOST_BETWEEN)):
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
    more["requests"] = len(rig.front.ended) - answered
    yield figure(f"memory.{tier}.failed", failed, "requests", len(made), samples=len(made), **more)
    more = {"longest_ms": round(max(longest) * 1e3, 2), "step_ms": round(step_s * 1e3, 2), "parts": PARTS}
    yield figure(f"memory.{tier}.pause", pause_s / step_s, "steps", 1.0, samples=len(made), **more)


def answers(rig: Rig, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of a run in which nothing is moved by hand, one request at a time."""
    made = []
    for prompt in prompts:
        rid = rig.submit(prompt, OUTPUT_TOKENS)
        while rid not in rig.front.ended:
            rig.scheduler.step()
        made.append(rig.front.outputs[rid])
    return made
