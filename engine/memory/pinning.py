"""How much memory this process could pin: what the system grants when asked, step by step, not what it says it would."""

from __future__ import annotations

import ctypes
import mmap
import resource
from dataclasses import asdict, dataclass
from typing import Any

_LOCK_WHEN_TOUCHED = 1  # MLOCK_ONFAULT: counts against the limit at once, and takes no memory
_STEP_BYTES = 64 << 10  # as exact as anybody needs


@dataclass(frozen=True, slots=True)
class Pinnable:
    """`bytes` were granted of `asked_bytes`; `limit_bytes` is what `ulimit -l` says, None for no limit. `measured` is False
    where the system cannot be asked without taking the memory; `bytes` is then the limit."""

    bytes: int
    asked_bytes: int
    limit_bytes: int | None
    measured: bool

    @property
    def sentence(self) -> str:
        """For people."""
        mib = self.bytes / (1 << 20)
        if self.bytes >= self.asked_bytes:
            return f"{mib:,.0f} MiB can be pinned, all that was asked for"
        return f"{mib:,.1f} MiB can be pinned (ulimit -l); a card's copies from memory beyond that are slower"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pinnable(asked_bytes: int) -> Pinnable:
    """The most of `asked_bytes` that can be pinned now, found by trying. Nothing stays pinned and no memory is taken."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = None if soft == resource.RLIM_INFINITY else soft
    asked = -(-max(1, asked_bytes) // _STEP_BYTES) * _STEP_BYTES
    try:
        granted = _try(asked)
    except (OSError, AttributeError):  # no mlock2 here
        return Pinnable(asked if limit is None else min(asked, limit), asked, limit, False)
    return Pinnable(granted, asked, limit, True)


def _try(asked: int) -> int:
    """Raises OSError when so much cannot even be mapped, or pinning is not offered at all; AttributeError without mlock2."""
    libc = ctypes.CDLL(None, use_errno=True)
    lock = libc.mlock2
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    with mmap.mmap(-1, asked, flags=flags) as memory:
        place = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(place)

        def granted(size: int) -> bool:
            done = lock(ctypes.c_void_p(address), ctypes.c_size_t(size), _LOCK_WHEN_TOUCHED) == 0
            if done:
                libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(size))
            elif ctypes.get_errno() == 38:  # ENOSYS
                raise OSError(38, "mlock2")
            return bool(done)

        try:
            if granted(asked):
                return asked
            low, high = 0, asked // _STEP_BYTES
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if granted(middle * _STEP_BYTES) else (low, middle)
            return low * _STEP_BYTES
        finally:
            del place  # a mapping with a view on it does not close
