"""Who listens on a TCP port, as far as /proc tells (Linux, own processes)."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

_LISTEN = "0A"


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def _listening_inodes(port: int) -> set[str]:
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(fields[9])
    return inodes


def owner(port: int) -> str | None:
    """`node (pid 4121)`, or None when it cannot be found out."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not wanted:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(fd.readlink()) in wanted for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text(encoding="utf-8").strip()
                return f"{name} (pid {process.name})"
    return None
