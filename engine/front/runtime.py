"""The runtime folder: private, locked by one engine, with the file that tells others where the engine is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

from engine.errors import FtError
from engine.front.supervision import orphan


class Conflict(FtError):
    """A port, lock or folder belongs to someone else; exit code 6."""

    code = "FT-E0409 conflict"


ENDING_S = 45.0  # an engine that was told to end has done so by then: the server's drain, then the worker's
_LOOK_S = 0.05


class RuntimeDir:
    """An owned runtime folder. `close` gives the lock back and removes engine.json."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd
        self._facts: dict[str, Any] = {}

    @staticmethod
    def take(path: Path, patience_s: float = ENDING_S) -> RuntimeDir:
        """Make the folder, private, and take its lock; end a worker whose engine was killed. A folder that exists keeps its mode.

        An engine that has the folder and is ending is waited for, for `patience_s`. Raises Conflict when the folder cannot be
        made, is a link, or another engine or user has it or may write in it.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Conflict(f"{path} cannot be made: {error.strerror}.", "Choose another --runtime-dir.") from None
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            raise Conflict(f"{path} is a link to {path.readlink()}.", "Remove it, or choose another --runtime-dir.")
        if info.st_uid != os.getuid():
            raise Conflict(f"{path} belongs to another user.", "Choose another --runtime-dir.")
        if stat.S_IMODE(info.st_mode) & 0o022:
            raise Conflict(f"Others may write in {path}.", f"chmod go-w {path}")
        fd = _locked(path, patience_s)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {orphan.process_start(os.getpid())}\n".encode(), 0)
        orphan.end(path)
        return RuntimeDir(path, fd)

    def announce(self, facts: dict[str, Any]) -> None:
        """Write engine.json, readable by the owner only, in one step."""
        self._facts = facts
        target = self.path / "engine.json"
        fresh = self.path / f".engine.json.{os.getpid()}"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(facts, file)
        fresh.replace(target)

    def ending(self) -> None:
        """From now on engine.json says so: nobody should begin anything with this engine."""
        with contextlib.suppress(OSError):
            self.announce({**self._facts, "ending": True})

    def close(self) -> None:
        (self.path / "engine.json").unlink(missing_ok=True)
        os.close(self._lock_fd)


def _locked(path: Path, patience_s: float) -> int:
    """The descriptor of the folder's lock. Who has it for an instant only looks; who is on the way to serve is waited for until
    that is known. Raises Conflict."""
    fd = os.open(path / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if not _serves(path / "engine.json") and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
                continue
            holder = os.pread(fd, 64, 0).decode("utf-8", "replace").split()
            os.close(fd)
            who = f" (pid {holder[0]})" if holder else ""
            raise Conflict(f"An engine{who} already runs in {path}.", "Use that one, or: ft engine stop") from None


def _serves(file: Path) -> bool:
    """Whether the engine that wrote engine.json lives and is not about to end."""
    try:
        facts = json.loads(file.read_bytes())
        return not facts.get("ending") and orphan.process_start(facts["pid"]) == facts["start_time"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises Conflict naming the owner of a taken port where the system tells."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        owner = port_owner(port)
        who = f" by {owner}" if owner else ""
        fact = f"Port {port} is used{who}" if error.errno == 98 else f"Port {port} cannot be used ({error.strerror})"
        raise Conflict(f"{fact}.", "Stop that program, or choose another port: --port N") from None
    sock.setblocking(False)
    return sock


def port_owner(port: int) -> str | None:
    """`NAME (pid N, COMMAND)` of the process that listens on a TCP port; None when we may not know."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if str(descriptor.readlink()) in inodes:
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                    name = (process / "comm").read_text().strip()
                    return f"{name} (pid {process.name}, {command[:120]})"
    return None
