"""Whole files through direct I/O: many reads at once into final memory, writes that overlap their making. Torch-free.

Direct I/O keeps the page cache out: nothing is held twice and nobody else's cache is evicted. File systems that refuse it are
read and written the ordinary way.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from engine.errors import WeightsError
from engine.weights.crc import Combiner

BLOCK_BYTES = 4096
READ_BYTES = 8 << 20
THREADS = 4  # reads under way at once
_WRITE_BYTES = 8 << 20
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_Buffer = Callable[[int, int], memoryview]  # (offset in the file, bytes) -> where to read to
_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP)


class CutShort(Exception):
    """A file ended at byte `offset`, before all of it was read."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Reader:
    """Reads whole files on a pool of threads, in the order they are asked for. `advance(bytes)` is called for every piece that
    arrived, from any of the threads. Use as a context: leaving it drops what has not begun."""

    def __init__(self, threads: int = THREADS, advance: Callable[[int], None] = lambda n_bytes: None) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="read")
        self._urgent = ThreadPoolExecutor(threads, thread_name_prefix="read-now")
        self._advance, self._scratch = advance, threading.local()
        self._files: list[FileRead] = []

    def into(self, path: Path, size_bytes: int, target: memoryview) -> FileRead:
        """Read to `target`, which lies at a multiple of 4096 bytes and has room for whole blocks of as many."""
        return self._file(path, size_bytes, lambda offset, n: target[offset : offset + n])

    def through(self, path: Path, size_bytes: int) -> FileRead:
        """Read for the checksum only."""
        return self._file(path, size_bytes, self._small_buffer)

    def _file(self, path: Path, size_bytes: int, buffer: _Buffer) -> FileRead:
        self._files.append(FileRead(path, size_bytes, self._pool, self._urgent, buffer, self._advance))
        return self._files[-1]

    def _small_buffer(self, offset: int, n_bytes: int) -> memoryview:
        if not hasattr(self._scratch, "memory"):
            self._scratch.memory = memoryview(mmap.mmap(-1, READ_BYTES))
        room: memoryview = self._scratch.memory[:n_bytes]
        return room

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        for pool in (self._pool, self._urgent):
            pool.shutdown(cancel_futures=True)
        for file in self._files:
            file.close()


class FileRead:
    """A file on its way: wait with `crc32`, or for some of it with `hurry`. Made by a Reader."""

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        pool: ThreadPoolExecutor,
        urgent: ThreadPoolExecutor,
        buffer: _Buffer,
        advance: Callable[[int], None],
    ) -> None:
        self.path, self.size_bytes = path, size_bytes
        self._buffer, self._advance, self._urgent = buffer, advance, urgent
        self._open, self._overtaking = threading.Lock(), threading.Lock()
        self._fd, self._direct = -1, bool(_DIRECT)
        self._chunks = [pool.submit(self._read, offset) for offset in range(0, size_bytes, READ_BYTES)]

    def crc32(self) -> int:
        """Waits. The checksum of the file. Raises CutShort, and OSError for what cannot be read."""
        combine, total, n_bytes = Combiner(READ_BYTES), 0, 0
        for i in range(len(self._chunks)):
            size = min(READ_BYTES, self.size_bytes - n_bytes)
            total = combine(total, self._result(i), size)
            n_bytes += size
        self.close()
        return total

    def hurry(self, spans: Iterable[tuple[int, int]]) -> None:
        """Return when the bytes of these spans (start, end) are there; what of them has not begun is read before everything
        else. Raises CutShort, OSError. One caller at a time, which may be another than that of `crc32`."""
        chunks = sorted(
            {i for start, end in spans for i in range(start // READ_BYTES, (end + READ_BYTES - 1) // READ_BYTES)}
        )
        with self._overtaking:
            for i in chunks:
                if self._chunks[i].cancel():
                    self._chunks[i] = self._urgent.submit(self._read, i * READ_BYTES)
        for i in chunks:
            self._chunks[i].result()

    def _result(self, i: int) -> int:
        while True:
            chunk = self._chunks[i]
            try:
                return chunk.result()
            except CancelledError:
                with self._overtaking:
                    overtaken = self._chunks[i] is not chunk
                if not overtaken:  # its reader was left
                    raise

    def close(self) -> None:
        """Only when nothing is being read any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self, offset: int) -> int:
        size = min(READ_BYTES, self.size_bytes - offset)
        room = self._buffer(offset, -(-size // BLOCK_BYTES) * BLOCK_BYTES)
        got = 0
        while got < size:
            n = self._read_some(room[got:], offset + got)
            if n == 0:
                raise CutShort(offset + got)
            self._advance(min(n, size - got))
            got += n
            # An odd end of a direct read is the end of the file; asking again from there would be refused.
            if got < size and got % BLOCK_BYTES:
                raise CutShort(offset + got)
        return zlib.crc32(room[:size])

    def _read_some(self, room: memoryview, offset: int) -> int:
        fd = self._descriptor()
        try:
            return os.preadv(fd, [room], offset)
        except OSError as error:
            if not (self._direct and error.errno in _REFUSALS):
                raise
        with self._open:
            if self._direct:
                os.close(self._fd)
                self._fd, self._direct = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), False
        return os.preadv(self._fd, [room], offset)

    def _descriptor(self) -> int:
        with self._open:
            if self._fd < 0:
                self._fd, self._direct = _open(self.path, os.O_RDONLY | os.O_CLOEXEC, self._direct)
            return self._fd


class DirectWriter:
    """Appends pieces to a new file; a thread writes one buffer while the next one is filled. `close` writes the rest and syncs.
    Raises WeightsError when the file cannot be written, also late. As a context it is closed, or dropped after an exception."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._path = path
        with self._told():
            self._fd, self._direct = _open(path, flags, bool(_DIRECT))
        self._buffers = [memoryview(mmap.mmap(-1, _WRITE_BYTES)) for _ in range(2)]
        self._filled = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._pending: Future[None] | None = None

    def write(self, piece: memoryview | bytes) -> None:
        """Copies `piece`, so that the caller may reuse it."""
        rest = memoryview(piece).cast("B")
        while rest:
            n = min(len(rest), _WRITE_BYTES - self._filled)
            self._buffers[0][self._filled : self._filled + n] = rest[:n]
            self._filled, rest = self._filled + n, rest[n:]
            if self._filled == _WRITE_BYTES:
                self._flush()

    def close(self) -> None:
        """Write the rest and sync. The second time it does nothing."""
        if self._fd < 0:
            return
        try:
            self._flush()
            self._settle()
            with self._told():
                os.fsync(self._fd)
        finally:
            self.drop()

    def drop(self) -> None:
        """Let go of the file as it is."""
        self._pool.shutdown()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> DirectWriter:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.drop()

    def _flush(self) -> None:
        self._settle()
        if self._filled:
            self._pending = self._pool.submit(self._put, self._buffers[0][: self._filled])
            self._buffers.reverse()
            self._filled = 0

    def _settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            with self._told():
                pending.result()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WeightsError(
                f"{self._path} cannot be written: {error.strerror}.",
                "Free some disk space, or choose another --models-dir.",
            ) from error

    def _put(self, data: memoryview) -> None:
        whole = len(data) // BLOCK_BYTES * BLOCK_BYTES if self._direct else len(data)
        self._put_all(data[:whole])
        if rest := data[whole:]:  # only at the end of the file
            self._buffered()
            self._put_all(rest)

    def _put_all(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError as error:
                if not (self._direct and error.errno in _REFUSALS):
                    raise
                self._buffered()

    def _buffered(self) -> None:
        if self._direct:
            position = os.lseek(self._fd, 0, os.SEEK_CUR)
            os.close(self._fd)
            self._fd, self._direct = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC), False
            os.lseek(self._fd, position, os.SEEK_SET)


def _open(path: Path, flags: int, direct: bool) -> tuple[int, bool]:
    if direct:
        try:
            return os.open(path, flags | _DIRECT, 0o666), True
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
    return os.open(path, flags, 0o666), False
