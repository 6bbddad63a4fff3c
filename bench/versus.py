"""Rounds that alternate between our engine and llama.cpp on the same weights."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import models
import sides
from sides import Side

from engine.bench.rows import Row, line

Measure = Callable[[Side], dict[str, float]]
TURNS = 3  # how often each side is loaded when both do not fit into memory at once
SPARE_BYTES = 3 << 30
GROUPS = {
    "experts": ("experts", "expert_outputs", "combine"),
    "matrices": ("linear", "embedding"),
    "attention": ("attention", "place_heads"),
    "delta": ("delta_rule", "delta_gates", "conv", "gated_rmsnorm"),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    models.add_flags(parser)
    sides.add_peer_flag(parser)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="samples of each side")
    parser.add_argument("--activations", choices=("auto", "f32", "bf16"), default="auto", help="of our side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two layers of shape A in one format, three rounds")


def over_models(
    args: argparse.Namespace, *benches: Callable[[models.Pair, argparse.Namespace], list[Row]]
) -> list[Row]:
    """The rows of each bench for every model asked for, one model on disk at a time."""
    rows: list[Row] = []
    for name, shape, format in models.chosen(args):
        with models.pair(name, shape, format, args.work, args.keep_models) as pair:
            for bench in benches:
                made = bench(pair, args)
                for entry in made:
                    print(line(entry), file=sys.stderr)
                rows += made
    return rows


def tokens(count: int, vocab: int) -> list[int]:
    """A prompt of random tokens, always the same."""
    rng = random.Random(1)
    return [rng.randrange(vocab // 2, vocab) for _ in range(count)]


def alternate(
    open_sides: dict[str, Callable[[], Side]], measures: dict[str, Measure], rounds: int, together: bool
) -> dict[str, list[float]]:
    """Samples by name of what each side's measure returns.

    `together`: all sides stay loaded and take turns round by round. Otherwise each is loaded in turn, several times over, because
    memory holds one at a time. The first round of every load warms up.
    """
    samples: dict[str, list[float]] = defaultdict(list)

    def take(name: str, side: Side, kept: bool) -> None:
        for key, value in measures[name](side).items():
            if kept:
                samples[key].append(value)

    if together:
        with ExitStack() as stack:
            loaded = {name: stack.enter_context(make()) for name, make in open_sides.items()}
            for round_ in range(rounds + 1):
                for name, side in loaded.items():
                    take(name, side, round_ > 0)
        return samples
    for _ in range(TURNS):
        for name, make in open_sides.items():
            with make() as side:
                for round_ in range(-(-rounds // TURNS) + 1):
                    take(name, side, round_ > 0)
    return samples


def shares(profile: dict[str, Any]) -> dict[str, float]:
    """Where the time of a step goes, in groups of operations, each as a share; see serve_ours.py."""
    spent: dict[str, float] = dict.fromkeys((*GROUPS, "others"), 0.0)
    for operation, seconds in profile["operations"].items():
        kind = operation.split()[0]
        spent[next((group for group, members in GROUPS.items() if kind in members), "others")] += seconds
    spent["between"] = profile["seconds"] - sum(spent.values())
    return {f"share.{group}": seconds / profile["seconds"] for group, seconds in spent.items()}


def median_shares(samples: dict[str, list[float]]) -> dict[str, float]:
    """Of all samples, as a field of a row."""
    return {k.removeprefix("share."): round(median(v), 3) for k, v in samples.items() if k.startswith("share.")}


def fit_together(pair: models.Pair) -> bool:
    available = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    return pair.resident_bytes + SPARE_BYTES < available


def peer(args: argparse.Namespace) -> Path | None:
    return sides.find_peer(args.peer_python)


def note(with_peer: bool) -> dict[str, str]:
    """What a row says beside its numbers."""
    said = [] if with_peer else [sides.NO_PEER]
    if (os.getloadavg()[0]) > 1.5 * (os.cpu_count() or 1):
        said.append("machine was busy")
    return {"note": "; ".join(said)} if said else {}
