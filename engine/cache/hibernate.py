"""Prefixes on disk: KV and recurrent states in files that survive the worker.

Files are content-addressed (see `segment`), so the same prefix is kept once and an index is built from names. A KV file
continues the one whose key is its parent. Under the byte budget the least recently used goes first, a KV file only when
nothing continues it. A damaged file is named in the log and deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.cache.forget import forgotten, of_sessions
from engine.cache.node import common_tokens
from engine.cache.segment import (
    Damaged,
    KvName,
    Name,
    Segment,
    StateName,
    keys,
    pack_segment,
    pack_state,
    parse_name,
    read_segment,
    read_state,
    read_tokens,
)

log = logging.getLogger(__name__)

UNUSABLE = (Damaged, OSError, ValueError, LookupError, TypeError)  # what reading a file of any content may raise


@dataclass(slots=True, eq=False)
class File:
    """One file of the index. `used` is its modification time in ns, refreshed when it is read."""

    name: Name
    path: Path
    bytes: int
    used: int
    tokens: array[int] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """What disk has of a prompt: `chain` of KV files from position 0 on, usable up to `position`; `states` by position."""

    position: int
    chain: tuple[KvName, ...]
    states: dict[int, StateName]


class Disk:
    """The checkpoint files of one model under `root`; files of other models there count towards the budget and age too.

    Thread-safe: one thread may write while another looks up and reads.
    """

    def __init__(self, root: Path, budget_bytes: int, identity: str) -> None:
        self.identity = identity
        self.budget_bytes = budget_bytes
        self.damaged = 0
        self._origin = keys(identity, array("I"), [0])[0]
        self._folder = root / self._origin
        self._lock = threading.RLock()
        self._kv: dict[str, File] = {}
        self._states: dict[str, File] = {}
        self._others: list[File] = []
        self._children: dict[str, list[KvName]] = {}
        for folder in (root, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._scan(root)

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(file.bytes for file in self._all())

    def __len__(self) -> int:
        return len(self._kv) + len(self._states)

    def find(self, tokens: array[int], hybrid: bool) -> Found | None:
        """The deepest place from which a prompt that begins with `tokens` can go on; for a `hybrid` that needs a state.
        Without states the last file may be used in part."""
        with self._lock:
            positions = sorted({file.name.end for file in self._kv.values() if isinstance(file.name, KvName)})
            known = keys(self.identity, tokens, positions)
            for position in sorted(known, reverse=True):
                chain = self._chain(known[position])
                if chain and (not hybrid or known[position] in self._states):
                    break
            else:
                position, chain = 0, ()
            if not hybrid:
                position, chain = self._further(tokens, position, chain, known)
            states = {p: StateName(k, p) for p, k in known.items() if k in self._states and p <= position}
            return Found(position, chain, states) if chain else None

    def deepest(self, tokens: array[int], position: int) -> tuple[int, str]:
        """(how far up to `position` KV of `tokens` is on disk in whole files, the key there)."""
        with self._lock:
            positions = sorted({f.name.end for f in self._kv.values() if isinstance(f.name, KvName)})
            known = keys(self.identity, tokens[:position], positions)
            for at in sorted(known, reverse=True):
                if self._chain(known[at]):
                    return at, known[at]
            return 0, self._origin

    def has_state(self, tokens: array[int], position: int) -> bool:
        return keys(self.identity, tokens, [position])[position] in self._states

    def segment(self, name: KvName) -> Segment | None:
        """The KV of one file; None when it is gone or damaged."""
        with self._lock:
            file = self._kv.get(name.key)
        if file is None:
            return None
        try:
            found = read_segment(file.path, self.identity)
            if (found.start, found.start + len(found.tokens)) != (name.start, name.end):
                raise Damaged("it holds other positions")
        except UNUSABLE as failure:
            self._discard(file, str(failure))
            return None
        self._touch(file)
        return found

    def state(self, name: StateName) -> bytes | None:
        """One recurrent state; None when it is gone or damaged."""
        with self._lock:
            file = self._states.get(name.key)
        if file is None:
            return None
        try:
            found = read_state(file.path, self.identity, name)
        except UNUSABLE as failure:
            self._discard(file, str(failure))
            return None
        self._touch(file)
        return found

    def keep_segment(self, tokens: array[int], parent: str, segment: Segment, owner: str = "") -> bool:
        """Write the KV that goes on from key `parent`; `tokens` are all up to its end, `owner` the session they are of. False
        when the budget has no room for it. Raises OSError."""
        end = len(tokens)
        name = KvName(keys(self.identity, tokens, [end])[end], parent, segment.start, end)
        return self._write(name, pack_segment(self.identity, segment, owner))

    def keep_state(self, tokens: array[int], state: bytes, owner: str = "") -> bool:
        """Write the state after `tokens`. False when the budget has no room for it. Raises OSError."""
        end = len(tokens)
        name = StateName(keys(self.identity, tokens, [end])[end], end)
        return self._write(name, pack_state(self.identity, name, state, owner))

    def forget(self, session: str) -> int:
        """Remove what only `session` has here; the number of files. Somebody else may be removing them at the same time."""
        with self._lock:
            for file in [file for file in (*self._kv.values(), *self._states.values()) if not file.path.exists()]:
                self._remove(file)
            files = {str(file.name): file for file in (*self._kv.values(), *self._states.values())}
            sessions = {session, *forgotten(self._folder.parent)}
            found = of_sessions([(file.name, file.path) for file in files.values()], sessions)
            for name, _ in found.alone:
                self._remove(files[str(name)])
        return len(found.alone)

    # The index

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
            if entry.parent != self._folder:
                self._others.append(file)
            else:
                self._add(file)
        for file in [f for f in self._kv.values() if not self._chain(f.name.key)]:
            self._remove(file)  # what it continues is gone
        for file in [f for f in self._states.values() if f.name.key not in self._kv]:
            self._remove(file)

    def _all(self) -> list[File]:
        return [*self._kv.values(), *self._states.values(), *self._others]

    def _add(self, file: File) -> None:
        if isinstance(file.name, StateName):
            self._states[file.name.key] = file
        else:
            self._kv[file.name.key] = file
            self._children.setdefault(file.name.parent, []).append(file.name)

    def _chain(self, key: str) -> tuple[KvName, ...]:
        """KV files from position 0 to `key`; () when one of them is missing."""
        chain: list[KvName] = []
        while key != self._origin:
            file = self._kv.get(key)
            if file is None or not isinstance(file.name, KvName):
                return ()
            chain.append(file.name)
            key = file.name.parent
        return tuple(reversed(chain))

    def _further(
        self, tokens: array[int], position: int, chain: tuple[KvName, ...], known: dict[int, str]
    ) -> tuple[int, tuple[KvName, ...]]:
        """(position, chain) with one more file whose first tokens are the prompt's next ones."""
        best, best_chain = position, chain
        for key in {self._origin, *known.values()}:
            before = self._chain(key)
            if key != self._origin and not before:
                continue
            for name in list(self._children.get(key, ())):
                if name.start < len(tokens):
                    rest = tokens[name.start : name.end].tobytes()
                    shared = name.start + common_tokens(self._tokens(name).tobytes(), rest)
                    if shared > best:
                        best, best_chain = shared, (*before, name)
        return best, best_chain

    def _tokens(self, name: KvName) -> array[int]:
        file = self._kv[name.key]
        if file.tokens is None:
            file.tokens = array("I")
            try:
                file.tokens = read_tokens(file.path, name)
            except UNUSABLE as failure:
                self._discard(file, str(failure))
        return file.tokens

    def _touch(self, file: File) -> None:
        with self._lock, contextlib.suppress(OSError):
            os.utime(file.path)
            file.used = file.path.stat().st_mtime_ns

    def _discard(self, file: File, why: str) -> None:
        log.warning("%s is damaged (%s) and is deleted", file.path, why)
        with self._lock:
            self.damaged += 1
            self._remove(file)

    def _remove(self, file: File) -> None:
        file.path.unlink(missing_ok=True)
        if file in self._others:
            self._others.remove(file)
        elif isinstance(file.name, StateName):
            self._states.pop(file.name.key, None)
        elif self._kv.pop(file.name.key, None) is not None:
            self._children[file.name.parent].remove(file.name)

    # Writing

    def _write(self, name: Name, parts: Sequence[bytes]) -> bool:
        """Write one file whole or not at all. False when the budget has no room for it."""
        size = sum(map(len, parts))
        with self._lock:
            if name.key in (self._kv if isinstance(name, KvName) else self._states):
                return True
            if not self._make_room(size, name):
                return False
        path = self._folder / str(name)
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".tmp", delete=False) as file:  # made 0600
            try:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).rename(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        with self._lock:
            self._add(File(name, path, size, path.stat().st_mtime_ns))
        return True

    def _make_room(self, size: int, name: Name) -> bool:
        total = self.size_bytes
        ours = {n.key for n in self._chain(name.parent if isinstance(name, KvName) else name.key)}
        while total + size > self.budget_bytes:
            free = [f for f in self._all() if f in self._others or self._may_go(f, ours)]
            victim = min(free, key=lambda f: f.used, default=None)
            if victim is None:
                return False
            self._remove(victim)
            total -= victim.bytes
        return True

    def _may_go(self, file: File, ours: set[str]) -> bool:
        key = file.name.key
        return isinstance(file.name, StateName) or not (key in ours or self._children.get(key) or key in self._states)
