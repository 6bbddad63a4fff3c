"""Which sessions are alive: each has a file that its launcher keeps locked, and the kernel lets go of the lock with the process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path

from ftagent.atomic import read_json
from ftagent.errors import Refused
from ftagent.paths import Paths, ensure
from ftagent.processes import start_time

_LEASE_WAIT_S = 2.0


def _lease_file(paths: Paths, session_id: str) -> Path:
    return paths.leases / f"{session_id}.json"


def take_lease(paths: Paths, session_id: str, inheritable: bool = False) -> int:
    """Marks the session alive for as long as the returned descriptor is open. The kernel drops the lock with the process.

    Raises Refused when another process has it.
    """
    ensure(paths.runtime)
    ensure(paths.leases)
    descriptor = _locked(_lease_file(paths, session_id), session_id)
    held = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "session": session_id}
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(held).encode())
        os.set_inheritable(descriptor, inheritable)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _locked(file: Path, session_id: str) -> int:
    """The file's lock. One who only looks has it for an instant, and one who ends takes the file away."""
    deadline = time.monotonic() + _LEASE_WAIT_S
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise Refused(
                f"Session {session_id} was started by another ft at the same time.",
                "ft ls",
                code="FT-E0440 still-attached",
            )
        time.sleep(0.01)


def drop_lease(paths: Paths, session_id: str, descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a file whose lock is free does not count
        _lease_file(paths, session_id).unlink(missing_ok=True)
    os.close(descriptor)


def lease_pid(paths: Paths, session_id: str) -> int | None:
    """The process that holds the session's lease; None where it is not the one that took it."""
    if not lease_is_held(paths, session_id):
        return None
    held = read_json(_lease_file(paths, session_id)) or {}
    pid = held.get("pid")
    if not isinstance(pid, int) or pid <= 1 or held.get("start_time") != start_time(pid):
        return None
    return pid


def holder(paths: Paths, session_id: str) -> str:
    """Where a session runs, for a person: process and terminal."""
    pid = lease_pid(paths, session_id)
    if pid is None:
        return ""
    with contextlib.suppress(OSError):
        terminal = str(Path(f"/proc/{pid}/fd/0").readlink())
        if terminal.startswith("/dev/pts/"):
            return f"process {pid} on {terminal.removeprefix('/dev/')}"
    return f"process {pid}"


def held_leases(paths: Paths) -> list[str]:
    """Ids of the sessions that are alive."""
    return [path.stem for path in paths.leases.glob("s-*.json") if lease_is_held(paths, path.stem)]


def lease_is_held(paths: Paths, session_id: str) -> bool:
    """Whether a process holds the lock; a file left by a dead one does not count."""
    try:
        descriptor = os.open(_lease_file(paths, session_id), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two that look at once do not see each other
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
