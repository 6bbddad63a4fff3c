"""How fast a model is read into memory, beside what its disk gives: for benchmarks."""

from __future__ import annotations

import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from engine.weights.direct import READ_BYTES, THREADS
from engine.weights.ftw import read_weights
from engine.weights.manifest import Manifest


@dataclass(frozen=True, slots=True)
class LoadRound:
    """Bytes per second: `disk` reads all weight files into a few small buffers, `load` into final memory with every byte summed.
    `load_cpu_s` are processor seconds of the load."""

    disk: float
    load: float
    load_cpu_s: float


def measure_load(manifest: Manifest, rounds: int, threads: int = THREADS) -> list[LoadRound]:
    """Both ways in turns, around the page cache, with as many reads under way. Raises OSError where direct reads are refused."""
    return [_round(manifest, threads) for _ in range(rounds)]


def _round(manifest: Manifest, threads: int) -> LoadRound:
    start = time.perf_counter()
    _read_only(manifest, threads)
    disk_s = time.perf_counter() - start
    start, cpu = time.perf_counter(), time.process_time()
    weights = read_weights(manifest, threads=threads)
    load_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    del weights
    return LoadRound(manifest.total_bytes / disk_s, manifest.total_bytes / load_s, cpu_s)


def _read_only(manifest: Manifest, threads: int) -> None:
    files = [(manifest.dense_file, manifest.dense_bytes), *((bank.file, bank.bytes) for bank in manifest.banks)]
    buffers = threading.local()

    def read(chunk: tuple[int, int]) -> None:
        if not hasattr(buffers, "memory"):
            buffers.memory = mmap.mmap(-1, READ_BYTES)
        os.preadv(chunk[0], [buffers.memory], chunk[1])

    opened = [(os.open(manifest.path(file), os.O_RDONLY | os.O_DIRECT), size) for file, size in files]
    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, ((fd, at) for fd, size in opened for at in range(0, size, READ_BYTES))))
    finally:
        for fd, _ in opened:
            os.close(fd)
