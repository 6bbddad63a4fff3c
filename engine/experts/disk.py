"""The disk tier: experts read from bank files straight into slots, around the page cache where the file system allows it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import WeightsError
from engine.weights.manifest import remedy

THREADS = 4  # reads under way at once; a disk queue this deep gives all it has for reads of a megabyte or more


@dataclass(slots=True)
class DiskStats:
    """Counters of reads that succeeded. `seconds` is time with at least one read under way."""

    reads: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


class DiskTicket:
    """Experts on their way from disk; see fetch.Ticket."""

    def __init__(self, n: int) -> None:
        self._changed = threading.Condition()
        self._ended = [False] * n
        self._errors: list[Exception | None] = [None] * n
        self._open = n
        self._first, self._last = 0.0, 0.0

    def wait(self, i: int) -> None:
        """See fetch.Ticket; also for all experts named before, whichever way round they arrive."""
        with self._changed:
            self._changed.wait_for(lambda: all(self._ended[: i + 1]))
        self._raise(i + 1)

    def wait_all(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0)
        self._raise(len(self._errors))

    def span(self) -> tuple[float, float]:
        return self._first, self._last

    def _raise(self, n: int) -> None:
        for error in self._errors[:n]:
            if error is not None:
                raise error

    def end(self, i: int, error: Exception | None, began: float) -> None:
        """Called by the reader of the i-th expert."""
        with self._changed:
            self._first = min(self._first or began, began)
            self._last = time.perf_counter()
            self._errors[i] = error
            self._ended[i] = True
            self._open -= 1
            self._changed.notify_all()


class _Read(NamedTuple):
    ticket: DiskTicket
    i: int
    layer: int
    expert: int
    address: int


class DiskFetcher:
    """`files[layer]` holds the layer's experts at multiples of `stride`. `slots` [capacity] i64 are the slots' addresses now;
    the owner may change it between tickets.

    Direct I/O needs slots at multiples of 4096 and a file system that allows it; otherwise reads pass through the page cache,
    and `direct` says so. `sums[layer][expert]` are CRC-32 that each expert's first read must match; where they are empty,
    nothing is checked. Raises WeightsError for a file that is missing or holds no whole number of experts. A failed read
    leaves the slot's content undefined and is raised by the ticket as a WeightsError that names the file.
    """

    def __init__(
        self,
        files: Sequence[Path],
        stride: int,
        slots: npt.NDArray[np.int64],
        threads: int = THREADS,
        sums: Sequence[Sequence[int]] = (),
        direct: bool = True,
    ) -> None:
        assert stride % mmap.PAGESIZE == 0, "stride"
        self.bytes_per_expert = stride
        self.stats = DiskStats()
        self._slots = slots
        aligned = not (slots % mmap.PAGESIZE).any()
        self._files = [_File(path, stride, direct and aligned) for path in files]
        self._sums = sums
        self._unchecked = [set(range(len(of_layer))) for of_layer in sums] or [set[int]() for _ in files]
        self._urgent: deque[_Read] = deque()
        self._ahead: deque[_Read] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._busy, self._busy_since = 0, 0.0
        self._threads = [threading.Thread(target=self._work, name=f"disk-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def direct(self) -> bool:
        """Whether every file is read around the page cache."""
        return all(file.direct for file in self._files)

    def start(self, layer: int, experts: Sequence[int], slots: Sequence[int], ahead: bool = False) -> DiskTicket:
        """See fetch.Fetcher. Reads with `ahead` wait until no others are queued."""
        ticket = DiskTicket(len(experts))
        addresses = self._slots[np.asarray(slots, dtype=np.int64)].tolist()
        reads = [_Read(ticket, i, layer, e, a) for i, (e, a) in enumerate(zip(experts, addresses, strict=True))]
        with self._wake:
            (self._ahead if ahead else self._urgent).extend(reads)
            self._wake.notify(len(reads))
        return ticket

    def report(self) -> dict[str, Any]:
        """See fetch.Fetcher."""
        stats = self.stats
        return {
            "disk": {
                "reads": stats.reads,
                "bytes": stats.bytes,
                "bytes_per_second": round(stats.bytes_per_second),
                "direct": self.direct,
            }
        }

    def close(self) -> None:
        """See fetch.Fetcher. Closes the files."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()
        for file in self._files:
            file.close()

    def _work(self) -> None:
        while (read := self._next()) is not None:
            began, error = time.perf_counter(), None
            try:
                self._read(read)
            except Exception as failure:  # whatever it is, someone waits for it
                error = failure
            with self._wake:
                self._busy -= 1
                if error is None:
                    self.stats.reads += 1
                    self.stats.bytes += self.bytes_per_expert
                if not self._busy:
                    self.stats.seconds += time.perf_counter() - self._busy_since
            read.ticket.end(read.i, error, began)

    def _next(self) -> _Read | None:
        with self._wake:
            while not (self._urgent or self._ahead):
                if self._closing:
                    return None
                self._wake.wait()
            if not self._busy:
                self._busy_since = time.perf_counter()
            self._busy += 1
            return (self._urgent or self._ahead).popleft()

    def _read(self, read: _Read) -> None:
        file = self._files[read.layer]
        memory = (ctypes.c_ubyte * self.bytes_per_expert).from_address(read.address)
        file.read(read.expert, memoryview(memory).cast("B"))
        if read.expert in self._unchecked[read.layer]:
            found, expected = zlib.crc32(memory), self._sums[read.layer][read.expert]
            if found != expected:
                raise WeightsError(
                    f"{file.path} is corrupt in expert {read.expert}: its checksum is {found:08x} and should be {expected:08x}.",
                    remedy(file.path.parent),
                )
            self._unchecked[read.layer].discard(read.expert)


class _File:
    """One bank file. `direct` turns false for good when the file system refuses direct reads."""

    def __init__(self, path: Path, stride: int, direct: bool) -> None:
        self.path, self._stride = path, stride
        try:
            self._fd, self.direct = _open(path, direct)
            size = os.fstat(self._fd).st_size
        except OSError as error:
            raise self._unreadable(error) from error
        if size == 0 or size % stride:
            raise self._truncated(size)
        self.experts = size // stride
        self._lock = threading.Lock()

    def read(self, expert: int, target: memoryview) -> None:
        """Fill `target` with the expert. Raises WeightsError."""
        offset, done = expert * self._stride, 0
        while done < self._stride:
            fd, direct = self._fd, self.direct
            try:
                got = os.preadv(fd, [target[done:]], offset + done)
            except OSError as error:
                if error.errno == errno.EINVAL and direct:
                    self._fall_back()
                    continue
                raise self._unreadable(error) from error
            if got == 0:
                raise self._truncated(offset + done)
            done += got

    def close(self) -> None:
        os.close(self._fd)

    def _fall_back(self) -> None:
        with self._lock:
            if self.direct:
                # The number stays valid for readers that are inside a call, so it is replaced and not closed.
                plain, _ = _open(self.path, direct=False)
                os.dup2(plain, self._fd, inheritable=False)
                os.close(plain)
                self.direct = False

    def _unreadable(self, error: OSError) -> WeightsError:
        return WeightsError(f"{self.path} cannot be read: {error.strerror}.", "Check the disk and permissions.")

    def _truncated(self, end: int) -> WeightsError:
        return WeightsError(f"{self.path} is truncated: it ends at byte {end}.", remedy(self.path.parent))


def _open(path: Path, direct: bool) -> tuple[int, bool]:
    """A descriptor, and whether it reads around the page cache."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    fd = os.open(path, flags)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # reads are whole experts; guessing beyond them is waste
    return fd, False
