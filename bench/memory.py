"""How memory is shared out while sessions grow: `python bench/memory.py [--tiers emulated disk] [--only model|engine] [--json] [--quick]`.

Rows `memory.<tier>.…` of two kinds. Modelled: engine/bench/memory/trace.json goes through the real arena, pools, prefix cache,
scheduler, mover and balancer, under the routing of bench/streams with the real slot table, while time is what the trace's
throttles say: `phase` and `session` (decode rate beside static splits found by sweep), `regret` (seconds beside a schedule that
knows the whole trace). Measured: a real engine with smollm2-moe on the emulated device, or with half of its experts in RAM and the
others on disk: `predicted` (decode rate after a move), `pause`, `failed`, `plan`, `give_back`, `overhead`. Most of the moves over which
`failed` counts are those of a small model with recurrent layers, whose states move too.

`--quick` plays the first turns only and makes fewer moves; its ratios are not those of the whole.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import memory_engine
import numpy as np
from memory_experts import Experts, missed

from engine.bench.memory.clairvoyant import Clairvoyant, Misses
from engine.bench.memory.figures import phase_rows, regret_row
from engine.bench.memory.play import Played, play
from engine.bench.memory.trace import THROTTLES, Shape, Turn, load
from engine.bench.rows import Row, show
from engine.experts.record import load_stream

ROOT = Path(__file__).parent.parent
ROUTING = ROOT / "bench" / "streams" / "smollm2-128x8.npz"
SIZES = (480, 760, 1050, 1400, 1800, 2200, 2320)  # numbers of slots that are replayed
QUICK_TURNS = 8


def model_rows(tiers: list[str], quick: bool) -> Iterator[Row]:
    """What the modelled engines do with the two traces. Their time is modelled, so they may share the machine."""
    shape = Shape()
    turns = {name: load(name)[: QUICK_TURNS if quick else None] for name in ("growing", "changing")}
    steps = max(sum(turn.output for turn in trace) for trace in turns.values())
    with ProcessPoolExecutor(os.cpu_count(), initializer=strict) as pool:
        sizes = SIZES[-4:] if quick else SIZES
        sums = {slots: pool.submit(replayed, slots, steps) for slots in sizes}
        plays = {(name, tier): pool.submit(played, turns[name], tier) for name in turns for tier in tiers}
        misses = Misses.of({slots: made.result() for slots, made in sums.items()})
        for tier in tiers:
            best = Clairvoyant(shape, THROTTLES[tier], misses)
            yield from phase_rows(tier, plays["growing", tier].result(), turns["growing"], best, shape)
            yield regret_row(tier, plays["changing", tier].result(), turns["changing"], best)


def strict() -> None:
    np.seterr(all="raise", under="ignore")


def replayed(slots: int, steps: int) -> list[int]:
    """Misses of every decode step of the longest trace; the others begin with the same steps."""
    print(f"routing replayed with {slots} slots", file=sys.stderr)
    return missed(load_stream(ROUTING), slots, steps)


def played(turns: list[Turn], tier: str) -> Played:
    """The whole trace through the real memory of the engine."""
    stream, shape = load_stream(ROUTING), Shape()

    def experts(leased: Sequence[int]) -> Experts:
        return Experts(stream, shape.slabs * shape.slots_per_slab, leased)

    return play(turns, shape, THROTTLES[tier], experts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiers", nargs="+", choices=tuple(THROTTLES), default=list(THROTTLES))
    parser.add_argument("--only", choices=("model", "engine"))
    memory_engine.add_flags(parser)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    if args.only != "engine":
        rows += model_rows(args.tiers, args.quick)
    if args.only != "model":
        for tier in args.tiers:
            rows += memory_engine.rows(tier, args)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
