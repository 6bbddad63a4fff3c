"""Decoding when only part of the experts fits into RAM: `python bench/disk.py [--percent 50] [--json] [--quick]` (as root).

llama.cpp maps the file and leaves paging to the kernel; we read experts around the page cache into slots of exactly the budget.
The cap is real: a helper locks the rest of the machine's memory (lock_memory.py), so that either engine has the dense weights,
`--percent` of the experts and 640 MiB. Sides take turns, each started anew with a cold page cache, and both are fed the
same random tokens: routing without any repetition in the text is the hardest there is.

Rows `disk.<format>.<percent>` (of shape A; others add their name) compare tokens per second, with page faults of both, our hit rate
and read speed beside them; rows `….bound` compare ours with what the disk allows at that hit rate: the speed of random expert-sized reads with nothing else
running, over the bytes that were missing. `--uncapped` leaves the memory alone and measures our side only.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import models
import sides
import versus
from sides import Side

from engine.bench.rows import Row, row, show
from engine.device.cpu import allocate_arena
from engine.weights.manifest import Manifest, load_manifest

PROMPT_TOKENS, WARM_TOKENS = 16, 8
SPARE_BYTES = 640 << 20  # beside the weights: the process, its KV cache, what the kernel keeps for itself
TURNS = 2
READS = 192  # of the disk's own speed
DEPTH = 4


@contextmanager
def capped(leave: int) -> Iterator[None]:
    """While it lasts, processes find no more than `leave` bytes of memory. Raises SystemExit where that is refused, and at
    the end when it did not hold."""
    command = [sys.executable, str(Path(__file__).parent / "lock_memory.py"), "--leave", str(leave)]
    helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert helper.stdout is not None and helper.stdin is not None
    try:
        if not helper.stdout.readline().startswith("locked"):
            raise SystemExit("memory cannot be locked: run this as root, or with --uncapped")
        yield
        if helper.poll() is not None:
            raise SystemExit("the cap was lost: other processes wanted memory too; run this on a quiet machine")
    finally:
        helper.stdin.close()
        helper.wait()


def forget(paths: Sequence[Path]) -> None:
    """Drop what the page cache holds of these files."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_speed(manifest: Manifest) -> float:
    """Bytes per second of random reads of whole experts, several at once, around the page cache."""
    stride, order = manifest.geometry.expert_bytes, random.Random(2)
    places = [(bank, expert) for bank in manifest.banks for expert in range(bank.experts)]
    chosen = order.sample(places, min(READS, len(places)))
    memory = allocate_arena(DEPTH * stride).numpy()
    files = {bank.file: os.open(manifest.path(bank.file), os.O_RDONLY | os.O_DIRECT) for bank in manifest.banks}

    def read(lane: int) -> None:
        view = memory[lane * stride : (lane + 1) * stride].data
        for bank, expert in chosen[lane::DEPTH]:
            assert os.preadv(files[bank.file], [view], expert * stride) == stride

    start = time.perf_counter()
    with ThreadPoolExecutor(DEPTH) as pool:
        list(pool.map(read, range(DEPTH)))
    seconds = time.perf_counter() - start
    for fd in files.values():
        os.close(fd)
    return len(chosen) * stride / seconds


class Measured:
    """Samples of one side over all its turns."""

    def __init__(self) -> None:
        self.speeds: list[float] = []
        self.per_token: dict[str, list[float]] = defaultdict(list)

    def take(self, side: Side, tokens: Sequence[int], rounds: int, per_round: int, ours: bool) -> None:
        """A prompt and a warm-up, then `rounds` rounds of `per_round` tokens each."""
        side.prefill(tokens[:PROMPT_TOKENS])
        at = PROMPT_TOKENS + WARM_TOKENS
        side.feed(tokens[PROMPT_TOKENS:at])
        before = self._counters(side, ours)
        for _ in range(rounds):
            self.speeds.append(per_round / side.feed(tokens[at : at + per_round]))
            at += per_round
        for name, value in self._counters(side, ours).items():
            self.per_token[name].append((value - before[name]) / (rounds * per_round))

    def mean(self, name: str) -> float:
        return sum(self.per_token[name]) / len(self.per_token[name])

    def _counters(self, side: Side, ours: bool) -> dict[str, float]:
        counters: dict[str, float] = dict(side.faults())
        if ours:
            experts = side.ask({"op": "experts"})
            counters |= {"hits": experts["hits"], "misses": experts["misses"]}
        return counters


def rows_of(pair: models.Pair, percent: int, args: argparse.Namespace) -> list[Row]:
    manifest = load_manifest(pair.directory)
    budget = manifest.geometry.bank_bytes * percent // 100
    rounds, ours_tokens, their_tokens = (1, 8, 4) if args.quick else (3, 16, 6)
    count = PROMPT_TOKENS + WARM_TOKENS + rounds * max(ours_tokens, their_tokens)
    tokens = versus.tokens(count, pair.shape.vocab)
    python = None if args.uncapped else versus.peer(args)
    flags = ("--activations", args.activations, "--host-memory", str(budget), "--chunk", "64")
    ours, theirs, speeds = Measured(), Measured(), []
    files = [pair.gguf, *(path for path in pair.directory.iterdir() if path.is_file())]

    def turns() -> None:
        for _ in range(1 if args.quick else TURNS):
            forget(files)
            speeds.append(disk_speed(manifest))
            with sides.ours(pair.directory, args.threads, count, *flags) as side:
                ours.take(side, tokens, rounds, ours_tokens, ours=True)
            if python is not None:
                forget(files)
                with sides.llama(python, pair.gguf, args.threads, count, mmap=True) as side:
                    theirs.take(side, tokens, rounds, their_tokens, ours=False)

    if args.uncapped:
        turns()
    else:
        with capped(manifest.dense_bytes + budget + SPARE_BYTES):
            turns()
    missing = ours.mean("misses")
    disk = sorted(speeds)[len(speeds) // 2]
    bound = disk / (missing * manifest.geometry.expert_bytes)
    facts = {
        "shape": pair.name,
        "threads": args.threads,
        "hit_rate": round(ours.mean("hits") / (ours.mean("hits") + missing), 3),
        "disk_gbs": round(disk / 1e9, 3),
        "read_gbs": round(
            missing * manifest.geometry.expert_bytes * sorted(ours.speeds)[len(ours.speeds) // 2] / 1e9, 3
        ),
        "major_faults_per_token": round(ours.mean("major"), 2),
        "capped": not args.uncapped,
    }
    if python is not None:
        facts["baseline_major_faults_per_token"] = round(theirs.mean("major"), 1)
    name = f"disk.{pair.format}.{percent}" + ("" if pair.name == "a" else f".{pair.name}")
    return [
        row(name, "tokens/s", ours.speeds, theirs.speeds, **facts, **versus.note(python is not None)),
        row(f"{name}.bound", "tokens/s", ours.speeds, [bound], **facts),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    versus.add_flags(parser)
    parser.add_argument("--percent", type=int, nargs="+", default=[50], help="of the experts that fit into RAM")
    parser.add_argument("--uncapped", action="store_true", help="do not touch the machine's memory; our side only")
    args = parser.parse_args()
    args.formats = args.formats or ["mxfp4"]
    if not args.quick:
        args.shapes = args.shapes or ["a"]
    rows: list[Row] = []
    for name, shape, format in models.chosen(args):
        with models.pair(name, shape, format, args.work, args.keep_models) as pair:
            for percent in args.percent:
                rows += rows_of(pair, percent, args)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
