"""How fast a model is read: `python bench/load.py [--json] [--quick]`.

Row `load.ftw`: bytes of a model directory per second, from a cold page cache into the memory that kernels read, checksums included,
beside plain direct reads of the same files by as many threads. Rows `load.warm.<resident %>`: tokens decoded after a cold start
until eight in a row reach 95 % of the steady rate, with all experts in memory and with half of them read from disk as needed.
Rows `load.first.<tier>`: seconds from a cold start to the first token of a short prompt, served while experts are still read, beside
one that waits for all of them; the two are interleaved.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import first_token
import models
import sides
import versus

from engine.bench.rows import Row, row, show
from engine.weights.ftw import THREADS, read_weights
from engine.weights.manifest import Manifest, load_manifest

BLOCK = 8 << 20
TOGETHER = 8  # tokens whose mean rate is looked at
STEADY = 0.95
SHORT = 16  # tokens of a prompt


def files(manifest: Manifest) -> list[Path]:
    """The large files of a model directory."""
    return sorted(path for path in manifest.directory.iterdir() if path.stat().st_size >= BLOCK)


def forget(paths: list[Path]) -> None:
    """Drop the files from the page cache."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def read_plainly(paths: list[Path], threads: int) -> float:
    """Seconds to read all whole blocks of the files around the page cache."""
    with ThreadPoolExecutor(threads) as pool:
        handles = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in paths]
        buffers = [mmap.mmap(-1, BLOCK) for _ in range(threads)]
        blocks = [
            (h, at) for h, p in zip(handles, paths, strict=True) for at in range(0, p.stat().st_size - BLOCK + 1, BLOCK)
        ]

        def work(thread: int) -> None:
            for handle, at in blocks[thread::threads]:
                os.preadv(handle, [buffers[thread]], at)

        start = time.perf_counter()
        list(pool.map(work, range(threads)))
        seconds = time.perf_counter() - start
        for handle in handles:
            os.close(handle)
    return seconds


def load_row(directory: Path, rounds: int) -> Row:
    manifest = load_manifest(directory)
    paths = files(manifest)
    total = sum(path.stat().st_size for path in paths)
    whole = sum(path.stat().st_size // BLOCK * BLOCK for path in paths)
    ours, theirs = [], []
    for _ in range(rounds):
        forget(paths)
        start = time.perf_counter()
        read_weights(manifest)
        ours.append(total / (time.perf_counter() - start) / 1e9)
        forget(paths)
        theirs.append(whole / read_plainly(paths, THREADS) / 1e9)
    return row("load.ftw", "GB/s", ours, theirs, bytes=total, threads=THREADS, **versus.note(True))


def until_steady(seconds: list[float]) -> int:
    """How many tokens came before the first run of TOGETHER ones at STEADY of the last third's rate."""
    steady = statistics.median(seconds[-len(seconds) // 3 :])
    for at in range(len(seconds) - TOGETHER + 1):
        if statistics.mean(seconds[at : at + TOGETHER]) <= steady / STEADY:
            return at
    return len(seconds)


def warm_row(directory: Path, percent: int, tokens: int, threads: int) -> Row:
    """Decoding after a cold start with `percent` of the experts in memory."""
    manifest = load_manifest(directory)
    forget(files(manifest))
    more = [] if percent == 100 else ["--host-memory", str(manifest.geometry.bank_bytes * percent // 100)]
    with sides.ours(directory, threads, tokens + 64, "--activations", "auto", *more) as side:
        side.prefill(versus.tokens(16, manifest.geometry.vocab_size))
        seconds = [side.decode(1)[0] for _ in range(tokens)]
    steady = 1 / statistics.median(seconds[-tokens // 3 :])
    made = row(f"load.warm.{percent}", "tokens", [until_steady(seconds)], steady_tokens_per_s=round(steady, 2))
    return made | {"note": f"steady rate {steady:.1f} tokens/s"}


@contextmanager
def model(args: argparse.Namespace) -> Iterator[Path]:
    name = f"load-{args.shape}-{args.layers}"
    directory: Path = args.work / name
    try:
        if not directory.exists():
            args.work.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-P", "-m", "engine", "models", "synth", "--like", args.shape, "--name", name]
            command += ["--layers", str(args.layers), "--format", args.format, "--dense-format", "q8_0"]
            subprocess.run([*command, "--models-dir", str(args.work)], check=True, stdout=subprocess.DEVNULL)
        yield directory
    finally:
        if not args.keep_models:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one layer, three rounds")
    parser.add_argument("--shape", default="shape-a", help="what `ft models synth --like` knows")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--format", default="mxfp4")
    parser.add_argument("--threads", type=int, default=2, help="of the kernels")
    parser.add_argument("--work", type=Path, default=models.WORK)
    parser.add_argument("--keep-models", action="store_true")
    args = parser.parse_args()
    args.layers = args.layers or (1 if args.quick else 8)
    tokens = 64 if args.quick else 384
    with model(args) as directory:
        rows = [load_row(directory, 3 if args.quick else 7)]
        rows += [warm_row(directory, percent, tokens, args.threads) for percent in (100, 50)]
        paths = files(load_manifest(directory))
        rows += first_token.rows(directory, lambda: forget(paths), 3 if args.quick else 7, SHORT, args.threads)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
