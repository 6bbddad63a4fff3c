"""Prefill over a throttled device: `python bench/overlap.py [--json] [--quick] [--modelled]`.

Rows `prefill.overlap.<n>.on`: a prompt of n tokens, in chunks, against the time that its streamed bytes need at the device's
bandwidth; `.off`: the same with nothing streamed ahead, against `.on`. Chunks are scaled down: what counts is that computing
a layer takes a quarter of the time of streaming it, as on machines where the second buffer was reported to be worth that.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from split import EXPERT_S, HIDDEN, TOP_K, Machine

import engine.kernels
from engine.bench.rows import Row, row, show
from engine.device.clock import Clock, ModelClock
from engine.experts.split import Split

LAYERS, EXPERTS, CHUNK, SCALE = 12, 32, 2048, 32  # SCALE tokens of the prompt are one row here
EXPERTS_SHARE, OTHER_SHARE = 0.15, 0.10  # of the time that streaming a layer takes: computing experts, and attention
KEPT = 0.1  # of all experts have slots beside the two layers that are streamed


def prompt(clock: Clock, tokens: int, double: bool) -> tuple[float, float]:
    """(seconds of the whole prompt, seconds its fills need at full bandwidth)."""
    machine = Machine.make(clock, 25.0, 57.0, LAYERS, EXPERTS, EXPERT_S / 3)
    fill = machine.device.speeds.fill
    machine.device.throttle(expert_s=EXPERTS_SHARE * machine.bank.shape.stride / fill)
    other_s = OTHER_SHARE * EXPERTS * machine.bank.shape.stride / fill
    slots = 2 * EXPERTS + int(KEPT * LAYERS * EXPERTS)
    executor = machine.executor(slots, lambda rates, size: Split(rates, size, fixed=1.0))
    executor.stream.double = double
    random = np.random.default_rng(tokens)
    spent = 0.0
    for chunk in range(1 + tokens // CHUNK):  # the first only warms up
        rows = CHUNK // SCALE
        ids = np.argsort(random.random((LAYERS, rows, EXPERTS)), axis=2)[..., :TOP_K].astype(np.int32)
        x, weights = torch.zeros(rows, HIDDEN), torch.full((rows, TOP_K), 1 / TOP_K)
        if chunk == 1:
            start, before = clock.now(), executor.filled * machine.bank.shape.stride + executor.stream.bytes
        for layer in range(LAYERS):
            clock.sleep_until(clock.now() + other_s)
            executor.run(layer, x, torch.from_numpy(ids[layer]), weights)
    executor.stream.finish()
    spent = clock.now() - start
    streamed = executor.filled * machine.bank.shape.stride + executor.stream.bytes - before
    executor.close()
    return spent, streamed / fill


def overlap_rows(clock: Clock, prompts: tuple[int, ...], rounds: int) -> list[Row]:
    rows = []
    for tokens in prompts:
        on, off, bound = [], [], []
        for _ in range(rounds):
            seconds, least = prompt(clock, tokens, True)
            on.append(seconds)
            bound.append(least)
            off.append(prompt(clock, tokens, False)[0])
        note = f"a layer's experts compute in {EXPERTS_SHARE:.0%}, its attention in {OTHER_SHARE:.0%} of streaming it"
        rows.append(row(f"prefill.overlap.{tokens}.on", "s", on, bound, note=note))
        rows.append(
            row(f"prefill.overlap.{tokens}.off", "s", off, on, note="nothing ahead, but computed as it arrives")
        )
    return rows


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ft bench overlap", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--modelled", action="store_true", help="count emulated time only, not this machine's")
    args = parser.parse_args(argv)
    engine.kernels.get("cpu").set_threads(1)  # the kernels' work is tiny
    prompts = (4096,) if args.quick else (4096, 8192, 16384)
    show(overlap_rows(ModelClock() if args.modelled else Clock(), prompts, 1 if args.quick else 3), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
