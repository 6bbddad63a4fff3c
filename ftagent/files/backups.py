"""Bytes of a file before and after each of our changes, and a pinned original that is never pruned."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from ftagent.atomic import write_bytes
from ftagent.paths import Paths, ensure

KEEP = 10
ORIGINAL = "original-"
MISSING = "missing"
_WRITTEN = ".written"


def digest(data: bytes | None) -> str | None:
    """None stands for: there was no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of one file: `<state>/backups/<owner>/<sha8 of its path>/<ns>-<sha8 of the content>`."""

    folder: Path

    @classmethod
    def of(cls, paths: Paths, owner: str, target: Path) -> Backups:
        return cls(paths.backups / owner / hashlib.sha256(str(target).encode()).hexdigest()[:8])

    def prepare(self) -> None:
        for folder in reversed([self.folder, *list(self.folder.parents)[:3]]):
            ensure(folder)

    def keep(self, before: bytes | None, after: bytes | None) -> str:
        """Writes both, and the original once. Returns the backup's id."""
        self.prepare()
        label = MISSING if before is None else str(digest(before))[:8]
        name = f"{time.time_ns()}-{label}"
        if self.original() is None:
            write_bytes(self.folder / f"{ORIGINAL}{label}", before or b"")
        write_bytes(self.folder / name, before or b"")
        if after is not None:
            write_bytes(self.folder / (name + _WRITTEN), after)
        return name

    def names(self) -> list[str]:
        """Oldest first, without the original."""
        if not self.folder.is_dir():
            return []
        found = [path.name for path in self.folder.iterdir() if path.name[:1].isdigit() and path.suffix != _WRITTEN]
        return sorted(found, key=lambda name: int(name.partition("-")[0]))

    def original(self) -> str | None:
        return next((path.name for path in sorted(self.folder.glob(ORIGINAL + "*"))), None)

    def content(self, name: str) -> bytes | None:
        """None: there was no file then. Raises FileNotFoundError when the backup is gone."""
        data = (self.folder / name).read_bytes()
        return None if name.endswith("-" + MISSING) else data

    def written(self, name: str) -> bytes | None:
        """What we wrote over it; None when the file was removed, or this is not kept any more."""
        try:
            return (self.folder / (name + _WRITTEN)).read_bytes()
        except FileNotFoundError:
            return None

    def prune(self) -> None:
        for name in self.names()[:-KEEP]:
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / (name + _WRITTEN)).unlink(missing_ok=True)
