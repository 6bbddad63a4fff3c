"""Prefixes on disk: KV and recurrent states in files that survive the worker.

Files are content-addressed (see `segment`), so the same prefix is kept once. A KV file continues the one whose key is its parent; which
there are and which go first is `index`. A damaged file is named in the log and deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.cache.forget import forgotten, of_sessions
from engine.cache.index import File, Index
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
    read_segment,
    read_state,
    read_tokens,
)

log = logging.getLogger(__name__)

UNUSABLE = (Damaged, OSError, ValueError, LookupError, TypeError)  # what reading a file of any content may raise


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
        self.damaged = 0
        self._lock = threading.RLock()
        origin = keys(identity, array("I"), [0])[0]
        for folder in (root, root / origin):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._index = Index(root, root / origin, origin, budget_bytes)

    @property
    def budget_bytes(self) -> int:
        return self._index.budget_bytes

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return self._index.size_bytes

    def __len__(self) -> int:
        return len(self._index)

    def find(self, tokens: array[int], hybrid: bool) -> Found | None:
        """The deepest place from which a prompt that begins with `tokens` can go on; for a `hybrid` that needs a state.
        Without states the last file may be used in part."""
        with self._lock:
            known = keys(self.identity, tokens, self._index.ends())
            for position in sorted(known, reverse=True):
                chain = self._index.chain(known[position])
                if chain and (not hybrid or known[position] in self._index.states):
                    break
            else:
                position, chain = 0, ()
            if not hybrid:
                position, chain = self._further(tokens, position, chain, known)
            states = {p: StateName(k, p) for p, k in known.items() if k in self._index.states and p <= position}
            return Found(position, chain, states) if chain else None

    def deepest(self, tokens: array[int], position: int) -> tuple[int, str]:
        """(how far up to `position` KV of `tokens` is on disk in whole files, the key there)."""
        with self._lock:
            known = keys(self.identity, tokens[:position], self._index.ends())
            for at in sorted(known, reverse=True):
                if self._index.chain(known[at]):
                    return at, known[at]
            return 0, self._index.origin

    def has_state(self, tokens: array[int], position: int) -> bool:
        return keys(self.identity, tokens, [position])[position] in self._index.states

    def segment(self, name: KvName) -> Segment | None:
        """The KV of one file; None when it is gone or damaged."""
        with self._lock:
            file = self._index.kv.get(name.key)
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
            file = self._index.states.get(name.key)
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
            for file in [file for file in self._index.own() if not file.path.exists()]:
                self._index.remove(file)
            files = {str(file.name): file for file in self._index.own()}
            sessions = {session, *forgotten(self._index.folder.parent)}
            found = of_sessions([(file.name, file.path) for file in files.values()], sessions)
            for name, _ in found.alone:
                self._index.remove(files[str(name)])
        return len(found.alone)

    def _further(
        self, tokens: array[int], position: int, chain: tuple[KvName, ...], known: dict[int, str]
    ) -> tuple[int, tuple[KvName, ...]]:
        """(position, chain) with one more file whose first tokens are the prompt's next ones."""
        best, best_chain = position, chain
        for key in {self._index.origin, *known.values()}:
            before = self._index.chain(key)
            if key != self._index.origin and not before:
                continue
            for name in self._index.after(key):
                if name.start < len(tokens):
                    rest = tokens[name.start : name.end].tobytes()
                    shared = name.start + common_tokens(self._tokens(name).tobytes(), rest)
                    if shared > best:
                        best, best_chain = shared, (*before, name)
        return best, best_chain

    def _tokens(self, name: KvName) -> array[int]:
        file = self._index.kv[name.key]
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
            self._index.remove(file)

    def _write(self, name: Name, parts: Sequence[bytes]) -> bool:
        """Write one file whole or not at all. False when the budget has no room for it."""
        size = sum(map(len, parts))
        with self._lock:
            if self._index.holds(name):
                return True
            if not self._index.make_room(size, name):
                return False
        path = self._index.folder / str(name)
        with tempfile.NamedTemporaryFile(dir=self._index.folder, suffix=".tmp", delete=False) as file:  # made 0600
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
            self._index.add(File(name, path, size, path.stat().st_mtime_ns))
        return True
