"""Memory that other programs want: how much must be given back, and how much may be taken again. Torch-free.

A look costs microseconds. A shortage that lasts is acted on, one that threatens at once is acted on at once; memory
counts as free again only when it has been free for a while, so that a program's flutter moves nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.memory.available import Available, read_available

SETTLE_S = 1.0  # a mild shortage that lasts this long is one
RETURN_S = 10.0  # and memory free for this long is free
_LEAST_RESERVE, _MOST_RESERVE, _SHARE = 256 << 20, 2 << 30, 32


class Reader(Protocol):
    """Where numbers come from. Called from one thread."""

    def read(self) -> Available:
        """What may still be taken, on top of what this process holds. Raises OSError when nobody can tell."""


class Host:
    """The RAM of this machine, or of the container that this process is in."""

    def read(self) -> Available:
        """See Reader."""
        return read_available()


@dataclass(frozen=True, slots=True)
class Spare:
    """What a look found, in bytes. At most one of `give_back_bytes` and `may_take_bytes` is above 0."""

    available_bytes: int
    total_bytes: int
    reserve_bytes: int  # what is left to other programs
    give_back_bytes: int
    may_take_bytes: int
    limited_by: str

    def to_json(self) -> dict[str, Any]:
        """Plain data for `ft.memory/1`."""
        return {name: getattr(self, name) for name in self.__slots__}


class Foreign:
    """Watches one memory. Called from one thread; a reader that fails is taken for a machine where nothing changes."""

    def __init__(
        self, reader: Reader, reserve_bytes: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`reserve_bytes` are left to other programs; by default 1/32 of the memory, within 256 MiB and 2 GiB."""
        self._reader = reader
        self._reserve = reserve_bytes
        self._clock = clock
        self._settled = False
        self._seen: deque[tuple[float, int]] = (
            deque()
        )  # (when, bytes beyond the reserve), the last RETURN_S and one before

    def look(self, promised_bytes: int = 0) -> Spare:
        """Read now. `promised_bytes` are those this process has planned with and not touched yet, so that they still count as
        available to everybody.

        The first look sets what is normal: a machine that had little left when the plan was made keeps half of that in reserve.
        """
        try:
            found = self._reader.read()
        except OSError:
            return Spare(0, 0, 0, 0, 0, "nobody tells")
        free = found.bytes - promised_bytes
        reserve = self._reserve_of(found, free)
        now, beyond = self._clock(), free - reserve
        self._seen.append((now, beyond))
        while len(self._seen) > 1 and self._seen[1][0] <= now - RETURN_S:
            self._seen.popleft()
        give = -beyond if beyond < -reserve // 2 else max(0, -self._best_since(now - SETTLE_S))
        take = 0
        if not give and self._seen[0][0] <= now - RETURN_S:
            take = max(0, min(beyond for _, beyond in self._seen) - reserve // 2)
        return Spare(found.bytes, found.total_bytes, reserve, give, take, found.limited_by)

    def _reserve_of(self, found: Available, free: int) -> int:
        if self._reserve is None:
            self._reserve = min(_MOST_RESERVE, max(_LEAST_RESERVE, found.total_bytes // _SHARE))
        if not self._settled:
            self._settled = True
            self._reserve = min(self._reserve, max(0, free) // 2)
        return self._reserve

    def _best_since(self, start: float) -> int:
        """The most that was free beyond the reserve since `start`, the look before it included; 0 where there was none."""
        best = None
        for when, beyond in reversed(self._seen):
            best = beyond if best is None else max(best, beyond)
            if when <= start:
                return best
        return 0


class Beside:
    """Looks as `foreign` does, where `promised` more bytes, which become fewer, have still to be filled by this process."""

    def __init__(self, foreign: Foreign, promised: Callable[[], int]) -> None:
        self._foreign, self._promised = foreign, promised

    def look(self, promised_bytes: int = 0) -> Spare:
        """See Foreign."""
        return self._foreign.look(promised_bytes + self._promised())
