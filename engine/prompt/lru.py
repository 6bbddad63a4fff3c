"""A least-recently-used map whose size is bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Thread-safe. An entry larger than the limit is not kept; a lost entry costs time, never a result."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Keep `value`, which takes about `size_bytes`; evicts the least recently used until the limit holds."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self.used_bytes -= old[1]
            if size_bytes > self.limit_bytes:
                return
            self._entries[key] = (value, size_bytes)
            self.used_bytes += size_bytes
            while self.used_bytes > self.limit_bytes:
                _, (_, evicted_bytes) = self._entries.popitem(last=False)
                self.used_bytes -= evicted_bytes

    def __len__(self) -> int:
        return len(self._entries)
