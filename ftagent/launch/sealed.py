"""`ft launch --sealed`: the agent in a network namespace that holds loopback and the engine, and nothing else.

Where the system does not permit one, proxy variables send the agent to a proxy of ours that refuses: it counts who asks,
and stops only those who heed the variables. Either way the attempts are reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ftagent.errors import Conflict, Refused
from ftagent.launch.egress import Egress, Report
from ftagent.launch.seal_variables import proxy_port

NAMESPACE, PROXY = "namespace", "proxy"
_NEW_USER, _NEW_NET, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_RESOLV_CONF = Path("/etc/resolv.conf")
_COUNTERS = ("/proc/self/net/snmp", "/proc/self/net/snmp6")


@dataclass(slots=True)
class Seal:
    """`enter` is called in the child before it becomes the agent; None in the mode PROXY."""

    mode: str
    enter: Callable[[], None] | None
    _egress: Egress

    def report(self) -> Report:
        return self._egress.report()


@contextlib.contextmanager
def seal(engine_url: str, session_id: str, folder: Path, mode: str | None = None) -> Iterator[Seal]:
    """Ready for one agent. `folder`: where a file of ours may lie meanwhile. `mode` None: the best that is permitted.

    Raises Refused for an engine on another machine, Conflict when the proxy's port is taken.
    """
    target = _loopback(engine_url)
    egress = Egress()
    try:
        if (mode or (NAMESPACE if namespaces_permitted() else PROXY)) == PROXY:
            egress.refuse(_listener("127.0.0.1", proxy_port(session_id)))
            yield Seal(PROXY, None, egress)
        else:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                resolv_conf = folder / "resolv.conf"
                resolv_conf.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
                threading.Thread(target=_serve_inside, args=(ours, egress, target), daemon=True).start()
                yield Seal(NAMESPACE, lambda: _enter(theirs, target, proxy_port(session_id), resolv_conf), egress)
                resolv_conf.unlink(missing_ok=True)
    finally:
        egress.close()


def namespaces_permitted() -> bool:
    """Whether a child of ours may have a network of its own; asked by trying."""
    try:
        return subprocess.run(["/bin/true"], preexec_fn=_unshare, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _loopback(engine_url: str) -> tuple[str, int]:
    parts = urlsplit(engine_url)
    if parts.hostname not in ("127.0.0.1", "localhost") or parts.port is None:
        raise Refused(
            f"--sealed needs an engine on this machine, and {engine_url} is not.", "Leave --sealed or --engine out."
        )
    return "127.0.0.1", parts.port


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise Conflict(f"Port {port} is taken: {error.strerror}.", "Launch again: a new session has another.") from None


def _enter(parent: socket.socket, target: tuple[str, int], proxy: int, resolv_conf: Path) -> None:
    """In the child: a new namespace whose sockets are handed to ft. Raises OSError."""
    _unshare()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack_from("h", fcntl.ioctl(control, _GET_FLAGS, request), 16)[0]
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    _bind_mount(resolv_conf, _RESOLV_CONF)
    sockets = [
        socket.create_server(target, backlog=128),
        socket.create_server(("127.0.0.1", proxy), backlog=128),
        names,
    ]
    counters = [os.open(path, os.O_RDONLY) for path in _COUNTERS if Path(path).exists()]
    socket.send_fds(parent, [b"x"], [*(opened.fileno() for opened in sockets), *counters])


def _serve_inside(ours: socket.socket, egress: Egress, target: tuple[str, int]) -> None:
    try:
        message, descriptors, _, _ = socket.recv_fds(ours, 1, 8)
    except OSError:
        return
    if not message:
        return
    engine, proxy, names, *counters = descriptors
    egress.count_packets(counters)
    egress.pass_on(socket.socket(fileno=engine), target)
    egress.refuse(socket.socket(fileno=proxy))
    egress.know_no_name(socket.socket(fileno=names))


def _unshare() -> None:
    """A network and mounts of this process's own; without privilege inside a user namespace with the same user."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NET | _NEW_MOUNTS) == 0:
        return
    user, group = os.getuid(), os.getgid()
    _must(libc.unshare(_NEW_USER))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    _must(libc.unshare(_NEW_NET | _NEW_MOUNTS))


def _bind_mount(source: Path, target: Path) -> None:
    """Without it names that are looked up are counted as packets without a route."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) == 0:
        libc.mount(bytes(source), bytes(target.resolve()), None, ctypes.c_ulong(_MS_BIND), None)


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
