"""The index of prefixes on disk: which files there are, which KV file continues which, and who goes first under the byte budget.

It is built from names (see `segment`). The least recently used goes first, a KV file only when nothing continues it and no state is
after it. Files of other models below the same root count and age too.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path

from engine.cache.segment import KvName, Name, StateName, parse_name


@dataclass(slots=True, eq=False)
class File:
    """One file of the index. `used` is its modification time in ns, refreshed when it is read."""

    name: Name
    path: Path
    bytes: int
    used: int
    tokens: array[int] | None = field(default=None, repr=False)


class Index:
    """Of the files in `folder` below `root`; `origin` is the key that no file continues. Not thread-safe: the caller locks."""

    def __init__(self, root: Path, folder: Path, origin: str, budget_bytes: int) -> None:
        self.origin = origin
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.kv: dict[str, File] = {}
        self.states: dict[str, File] = {}
        self._others: list[File] = []
        self._children: dict[str, list[KvName]] = {}
        self._scan(root)

    def __len__(self) -> int:
        return len(self.kv) + len(self.states)

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self._all())

    def own(self) -> list[File]:
        """Those of this model."""
        return [*self.kv.values(), *self.states.values()]

    def ends(self) -> list[int]:
        """The token positions at which KV files end, ascending."""
        return sorted({file.name.end for file in self.kv.values() if isinstance(file.name, KvName)})

    def after(self, key: str) -> list[KvName]:
        """KV files that continue `key`."""
        return list(self._children.get(key, ()))

    def holds(self, name: Name) -> bool:
        return name.key in (self.kv if isinstance(name, KvName) else self.states)

    def add(self, file: File) -> None:
        if isinstance(file.name, StateName):
            self.states[file.name.key] = file
        else:
            self.kv[file.name.key] = file
            self._children.setdefault(file.name.parent, []).append(file.name)

    def chain(self, key: str) -> tuple[KvName, ...]:
        """KV files from position 0 to `key`; () when one of them is missing."""
        chain: list[KvName] = []
        while key != self.origin:
            file = self.kv.get(key)
            if file is None or not isinstance(file.name, KvName):
                return ()
            chain.append(file.name)
            key = file.name.parent
        return tuple(reversed(chain))

    def remove(self, file: File) -> None:
        """From disk and from here."""
        file.path.unlink(missing_ok=True)
        if file in self._others:
            self._others.remove(file)
        elif isinstance(file.name, StateName):
            self.states.pop(file.name.key, None)
        elif self.kv.pop(file.name.key, None) is not None:
            self._children[file.name.parent].remove(file.name)

    def make_room(self, size: int, name: Name) -> bool:
        """Remove what must go so that `name` fits, of so many bytes. False when too much must stay."""
        total = self.size_bytes
        ours = {n.key for n in self.chain(name.parent if isinstance(name, KvName) else name.key)}
        while total + size > self.budget_bytes:
            free = [f for f in self._all() if f in self._others or self._may_go(f, ours)]
            victim = min(free, key=lambda f: f.used, default=None)
            if victim is None:
                return False
            self.remove(victim)
            total -= victim.bytes
        return True

    def _may_go(self, file: File, ours: set[str]) -> bool:
        key = file.name.key
        return isinstance(file.name, StateName) or not (key in ours or self._children.get(key) or key in self.states)

    def _scan(self, root: Path) -> None:
        for entry in sorted(root.rglob("*")):
            if entry.suffix == ".tmp":
                entry.unlink(missing_ok=True)
                continue
            name = parse_name(entry.name)
            if name is None or not entry.is_file():
                continue
            stat = entry.stat()
            file = File(name, entry, stat.st_size, stat.st_mtime_ns)
            if entry.parent != self.folder:
                self._others.append(file)
            else:
                self.add(file)
        for file in [f for f in self.kv.values() if not self.chain(f.name.key)]:
            self.remove(file)  # what it continues is gone
        for file in [f for f in self.states.values() if f.name.key not in self.kv]:
            self.remove(file)

    def _all(self) -> list[File]:
        return [*self.kv.values(), *self.states.values(), *self._others]
