"""Which process has the runtime folder, whether or not it answers: an engine that starts, serves, hangs, or is ending."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from ftagent.atomic import read_json
from ftagent.paths import Paths
from ftagent.processes import is_alive, start_time

LOCK = "supervisor.lock"


@dataclass(frozen=True, slots=True)
class Holder:
    """`pid` and `born` name one process; both are None where it cannot be told which one it is."""

    pid: int | None
    born: str | None
    ending: bool  # it was told to end
    announced: bool  # it serves, or did

    @property
    def doing(self) -> str:
        """The engine's state, for people."""
        return "stopping" if self.ending else "unresponsive" if self.announced else "starting"

    @property
    def gone(self) -> bool:
        return not is_alive(self.pid) or start_time(self.pid or 0) != self.born


def holder(paths: Paths) -> Holder | None:
    """None where no process has the folder. Looking takes the lock for an instant, which engines bear with."""
    lock = paths.runtime / LOCK
    if not _is_held(lock):
        return None
    pid, born = _named_in(lock)
    record = read_json(paths.engine_file)
    if record is None:  # not written yet; or damaged, for engines write it in one step
        return Holder(pid, born, ending=False, announced=paths.engine_file.exists())
    if record.get("pid") != pid:  # of the engine before, which was killed
        record = {}
    return Holder(pid, born, bool(record.get("ending")), bool(record))


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _named_in(lock: Path) -> tuple[int | None, str | None]:
    """The process that the lock names, if it lives and is still that one."""
    try:
        words = lock.read_text(encoding="ascii").split()
        pid = int(words[0])
    except (OSError, ValueError, IndexError):
        return None, None
    born = start_time(pid)
    if not is_alive(pid) or born is None or (len(words) > 1 and words[1] != born):
        return None, None
    return pid, born
