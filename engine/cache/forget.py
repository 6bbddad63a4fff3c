"""What sessions alone have on disk.

A file says in its header which session wrote it. One that something of another session goes on from is shared, and stays:
what goes on from it would be lost with it. The ids of forgotten sessions are kept, so that it goes when the last of those is
forgotten as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.cache.segment import KvName, Name, StateName, parse_name, read_owner

_IDS = "forgotten"
_MAX_IDS = 4096


@dataclass(frozen=True, slots=True)
class Belongings:
    """`alone`: may be removed in this order. `shared`: how many others go on from."""

    alone: list[tuple[Name, Path]]
    shared: int

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for _, path in self.alone if path.exists())


def of_sessions(files: Iterable[tuple[Name, Path]], sessions: Container[str]) -> Belongings:
    """Of the files of one model, those that `sessions` wrote; what cannot be read is nobody's."""
    states: dict[str, list[tuple[Name, Path]]] = {}
    kv: list[tuple[KvName, Path]] = []
    for name, path in files:
        if isinstance(name, StateName):
            states.setdefault(name.key, []).append((name, path))
        else:
            kv.append((name, path))
    alone: list[tuple[Name, Path]] = []
    shared = 0
    needed: set[str] = set()  # keys that something goes on from, or resumes at, and that stay
    for name, path in sorted(kv, key=lambda file: file[0].end, reverse=True):
        here = states.pop(name.key, [])
        own = read_owner(path) in sessions
        if own and name.key not in needed and all(read_owner(state) in sessions for _, state in here):
            alone += [*here, (name, path)]
            continue
        shared += own
        needed.update((name.key, name.parent))
    return Belongings(alone, shared)


def forgotten(root: Path) -> list[str]:
    """Ids of sessions that were forgotten, the newest last."""
    try:
        return (root / _IDS).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def remember(root: Path, sessions: Iterable[str]) -> None:
    """That these are forgotten."""
    ids = list(dict.fromkeys([*forgotten(root), *sessions]))[-_MAX_IDS:]
    with tempfile.NamedTemporaryFile("w", dir=root, suffix=".tmp", delete=False) as file:  # made 0600
        file.write("\n".join(ids) + "\n")
    Path(file.name).replace(root / _IDS)


def below(root: Path, sessions: Container[str]) -> Belongings:
    """Of all models in a folder of checkpoints."""
    alone: list[tuple[Name, Path]] = []
    shared = 0
    for folder in sorted(path for path in root.glob("*") if path.is_dir() and not path.is_symlink()):
        named = ((parse_name(path.name), path) for path in sorted(folder.iterdir()))
        found = of_sessions([(name, path) for name, path in named if name is not None], sessions)
        alone += found.alone
        shared += found.shared
    return Belongings(alone, shared)
