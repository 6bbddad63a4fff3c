"""Fill or compute in place, on the emulated device: `python bench/split.py [--json] [--quick] [--only ratio|phase|batch|throttled]`.

Real kernels compute on a small bank while copies and host reads take the time that the emulated bandwidths say, scaled down
so that everything else is small beside them. Every row compares the running estimate with every static split of the same
work; sides alternate, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import engine.kernels
from engine.bench.rows import Row, row, show
from engine.device.clock import Clock, ModelClock
from engine.device.cpu import allocate_arena
from engine.device.emulated import EmulatedDevice, Speeds
from engine.experts.bank import Bank
from engine.experts.copy import CopyFetcher
from engine.experts.slots import SlotTable
from engine.experts.split import Profile, Rates, Split
from engine.experts.tiered import Tiered
from engine.kernels.contract import ExpertShape, Ops
from engine.weights.ftw import aligned_buffer

HIDDEN, WIDTH, TOP_K = 64, 32, 8
RATIOS = ((11.8, 47.5), (25.0, 57.0), (52.7, 57.0), (52.7, 178.0))  # fill, host in GB/s, as on real machines
EXPERT_S = 1.5e-3  # of reading one expert at full host bandwidth, which sets the scale
Routing = np.ndarray[Any, np.dtype[np.int32]]


class Static(Split):
    """The same number of fills whatever is measured."""

    def __init__(self, rates: Rates, expert_bytes: int, q: int) -> None:
        super().__init__(rates, expert_bytes)
        self._q = q

    def choose(self, misses: int, rows: Any = (), hits: int = 0) -> int:
        return min(self._q, misses)


class Plain(Split):
    """q* = m * P / H and nothing else, rounded by accumulated error."""

    def wanted(self, misses: int, rows: float, hits: int) -> float:
        return misses * self.rates.fill.value / self.rates.host

    def _round(self, wanted: float, misses: int) -> int:
        self._owed += wanted
        q = min(int(self._owed), misses)
        self._owed = min(self._owed - q, 1.0)
        return q


@dataclass(slots=True)
class Machine:
    """A bank of random experts beside an emulated device. `gb` is what one GB/s of the modelled machine is here."""

    ops: Ops
    bank: Bank
    device: EmulatedDevice
    gb: float

    @staticmethod
    def make(clock: Clock, fill: float, host: float, layers: int, experts: int, expert_s: float = EXPERT_S) -> Machine:
        ops = engine.kernels.get("cpu")
        shape = ExpertShape(HIDDEN, WIDTH, "f32")
        data = []
        for _ in range(layers):
            layer = aligned_buffer(experts * shape.stride).view(experts, shape.stride).zero_()
            layer.view(torch.float32).normal_(generator=torch.Generator().manual_seed(1))
            data.append(layer)
        gb = shape.stride / expert_s / host
        return Machine(ops, Bank(data, shape), EmulatedDevice(Speeds(fill * gb, host * gb), clock), gb)

    def executor(self, slots: int, split: Callable[[Rates, int], Split], profile: Profile | None = None) -> Tiered:
        bank, stride = self.bank, self.bank.shape.stride
        memory = allocate_arena(slots * stride)
        at = memory.data_ptr() + stride * np.arange(slots, dtype=np.int64)
        speeds = self.device.speeds
        rates = Rates(profile or Profile(speeds.fill, speeds.host))
        made = Tiered(
            self.ops,
            bank.shape,
            SlotTable(len(bank.layers), bank.experts, slots),
            at,
            CopyFetcher(bank, at, self.device),
            self.device,
            TOP_K,
            rates,
            split(rates, stride),
            bank,
        )
        made.memory = memory  # type: ignore[attr-defined]  # lives as long as its slots
        return made


def step(executor: Tiered, ids: Routing, layers: int, other_s: float = 0.0) -> float:
    """Seconds of one step: `ids` [layers, rows, top_k]; every layer has `other_s` of other work."""
    x = torch.zeros(ids.shape[1], HIDDEN)
    weights = torch.full(ids.shape[1:], 1 / TOP_K)
    clock = executor.device.clock
    start = clock.now()
    for layer in range(layers):
        executor.run(layer, x, torch.from_numpy(ids[layer]), weights)
        clock.sleep_until(clock.now() + other_s)
    return clock.now() - start


def forget(executor: Tiered) -> None:
    """Empty every slot, so that the next step misses everything."""
    everything = np.arange(executor.table.slots)
    executor.table.withdraw(everything)
    executor.table.offer(everything)


def routing(
    layers: int, experts: int, rows: int, seed: int, keep: float = 0.55, skew: float = 1.0
) -> Iterator[Routing]:
    """Endless [layers, rows, top_k]: experts of unequal popularity, of which a part is used again in the next step."""
    random = np.random.default_rng(seed)
    popular = np.stack([random.permutation(np.arange(4, experts + 4) ** -skew) for _ in range(layers)])
    last = np.zeros((layers, rows, experts), dtype=bool)
    while True:
        noise = random.gumbel(size=last.shape) + np.log(popular)[:, None]
        noise += np.where(last & (random.random(last.shape) < keep), 100.0, 0.0)
        ids = np.argsort(-noise, axis=2)[..., :TOP_K].astype(np.int32)
        last[:] = False
        np.put_along_axis(last, ids.astype(np.int64), True, axis=2)
        yield np.ascontiguousarray(ids)


def ratio_rows(clock: Clock, rounds: int) -> list[Row]:
    """A layer whose top-k all miss, on opposite machines."""
    rows = []
    for fill, host in RATIOS:
        machine = Machine.make(clock, fill, host, 1, 32)
        sides = [machine.executor(16, lambda r, b, q=q: Static(r, b, q)) for q in range(TOP_K + 1)]  # type: ignore[misc]
        wrong = Profile(machine.device.speeds.fill * 2, machine.device.speeds.host * 1.5)
        ours = machine.executor(16, Split, wrong)
        ids = np.arange(TOP_K, dtype=np.int32)[None, None]
        times: list[list[float]] = [[] for _ in range(TOP_K + 2)]
        for i in range(rounds + 8):
            for side, found in zip([*sides, ours], times, strict=True):
                forget(side)
                seconds = step(side, ids, 1)
                if i >= 8:
                    found.append(seconds * 1e3)
        means = [statistics.mean(found) for found in times]
        best = min(range(TOP_K + 1), key=lambda q: means[q])
        rows.append(
            row(
                f"split.ratio.{fill:g}-{host:g}",
                "ms",
                [means[-1]],
                [means[best]],
                note=f"started from a wrong profile; sweep q=0..{TOP_K}: {' '.join(f'{m:.1f}' for m in means[:-1])}",
            )
        )
        rows[-1]["samples"] = rounds
        for side in [*sides, ours]:
            side.close()
    return rows


PHASES = (("calm", 25.0, 57.0), ("game", 25.0, 30.0), ("narrow", 6.0, 57.0), ("again", 25.0, 57.0))


def phase_rows(clock: Clock, steps: int, keep: float = 0.55) -> list[Row]:
    """Decode over a cache of 37 % while bandwidths change; all sides see the same routing and the same changes."""
    layers, experts = 4, 48
    machine = Machine.make(clock, 25.0, 57.0, layers, experts)
    slots = layers * experts * 37 // 100
    sides = {f"q={q}": machine.executor(slots, lambda r, b, q=q: Static(r, b, q)) for q in range(TOP_K + 1)}  # type: ignore[misc]
    sides["ours"] = machine.executor(slots, Split)
    rows = []
    streams = {name: routing(layers, experts, 1, 5, keep) for name in sides}
    for side, executor in sides.items():  # fill the caches
        for _ in range(30):
            step(executor, next(streams[side]), layers)
    for name, fill, host in PHASES:
        speeds: dict[str, float] = {}
        machine.device.throttle(fill=fill * machine.gb, host=host * machine.gb)
        for side, executor in sides.items():
            speeds[side] = steps / sum(step(executor, next(streams[side]), layers) for _ in range(steps))
        ours = speeds.pop("ours")
        best = max(speeds, key=lambda side: speeds[side])
        sweep = " ".join(f"{speed:.1f}" for speed in speeds.values())
        rows.append(
            row(
                f"split.{name}",
                "steps/s",
                [ours],
                [speeds[best]],
                note=f"fill {fill:g}, host {host:g}; q=0..8: {sweep}",
            )
        )
    for executor in sides.values():
        executor.close()
    return rows


def throttled_row(clock: Clock, steps: int) -> Row:
    """A game takes host bandwidth from 178 to 54 at a fill bandwidth of 52.7: what is left of the decode rate."""
    layers, experts = 4, 48
    machine = Machine.make(clock, 52.7, 178.0, layers, experts, EXPERT_S / 3)
    other_s = (
        25 * EXPERT_S / 3
    )  # a layer of a 35B model that decodes 100 tokens/s takes about as long as reading 25 experts
    executor = machine.executor(layers * experts * 37 // 100, Split)
    stream = routing(layers, experts, 1, 6, skew=2.0)
    for _ in range(60):
        step(executor, next(stream), layers)
    speeds, missed = [], []
    for host in (178.0, 54.0):
        machine.device.throttle(host=host * machine.gb)
        before = sum(executor.misses)
        speeds.append(steps / sum(step(executor, next(stream), layers, other_s) for _ in range(steps)))
        missed.append(round(100 * (sum(executor.misses) - before) / (steps * layers * TOP_K)))
    executor.close()
    note = f"37 % of experts in slots, {missed[0]} and {missed[1]} % of accesses miss; "
    note += "other work per layer takes as long as reading 25 experts from host memory"
    return row("split.throttled", "steps/s", [speeds[1]], [speeds[0]], note=note)


def batch_rows(clock: Clock, steps: int, batches: tuple[int, ...]) -> list[Row]:
    """Batches of decodes: hits take the device time, and in-place experts that several rows want take arithmetic."""
    layers, experts = 1, 128
    rows = []
    for n in batches:
        machine = Machine.make(clock, 25.0, 57.0, layers, experts, 0.4e-3)
        machine.device.throttle(expert_s=0.1e-3, row_s=0.3e-3)
        slots = experts * 37 // 100 + TOP_K * n
        shares = [i / 8 for i in range(9)]
        sides: list[Tiered] = [machine.executor(slots, lambda r, b, s=s: Split(r, b, s)) for s in shares]  # type: ignore[misc]
        sides += [machine.executor(slots, Plain), machine.executor(slots, Split)]
        times = []
        for side in sides:
            stream = routing(layers, experts, n, 7)
            spent = [step(side, next(stream), layers) for _ in range(2 * steps)]
            times.append(statistics.mean(spent[steps:]) * 1e3)
            side.close()
        best, plain = min(times[: len(shares)]), times[-2]
        sweep = " ".join(f"{t:.1f}" for t in times[: len(shares)])
        note = f"m*P/H alone: {plain / best:.3f}; shares 0, 1/8 .. 1: {sweep}"
        made = row(f"split.batch.{n}", "ms", [times[-1]], [best], note=note, tokens_per_s=round(n / times[-1] * 1e3, 1))
        rows.append(made | {"samples": steps})
    return rows


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ft bench split", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few seconds: fewer steps, and --modelled")
    parser.add_argument("--modelled", action="store_true", help="count emulated time only, not this machine's")
    parser.add_argument("--only", choices=["ratio", "phase", "throttled", "batch"])
    args = parser.parse_args(argv)
    rows: list[Row] = []
    modelled = args.modelled or args.quick  # real waiting takes minutes on a busy machine
    clock = ModelClock() if modelled else Clock()
    engine.kernels.get("cpu").set_threads(1)  # the kernels' work is tiny
    if args.only in (None, "ratio"):
        rows += ratio_rows(clock, 8 if args.quick else 40)
    if args.only in (None, "phase"):
        rows += phase_rows(clock, 24 if args.quick else 150)
    if args.only in (None, "throttled"):
        rows.append(throttled_row(clock, 40 if args.quick else 200))
    if args.only in (None, "batch"):
        rows += batch_rows(clock, 20 if args.quick else 60, (1, 4, 16) if args.quick else (1, 2, 4, 8, 16))
    if modelled:
        for made in rows:
            made["note"] = f"modelled clock; {made['note']}"
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
