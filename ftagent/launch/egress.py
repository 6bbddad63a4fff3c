"""What a sealed agent meets instead of the network: a way to the engine, a proxy that refuses and a resolver that knows no name.

Each attempt to leave is counted under the name that was wanted. The sockets may belong to another network namespace.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

NO_SUCH_NAME = 3
UNKNOWN = "an address without a route"
_HEAD_BYTES = 16 * 1024
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """`port` is None for a name that was only looked up; `host` is `UNKNOWN` for packets that had nowhere to go."""

    host: str
    port: int | None
    count: int

    def json(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "count": self.count}


@dataclass(frozen=True, slots=True)
class Report:
    """`served`: connections that were passed on to the engine; None where the agent reaches it without us."""

    served: int | None
    refused: list[Attempt] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        return sum(attempt.count for attempt in self.refused)

    def json(self) -> dict[str, Any]:
        return {"served": self.served, "refused": [attempt.json() for attempt in self.refused]}


class Egress:
    """Serves sockets in threads that end with the process or when their socket is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: Counter[tuple[str, int | None]] = Counter()
        self._served: int | None = None
        self._counters: list[int] = []  # descriptors of /proc/net/snmp and snmp6 of the agent's namespace
        self._packets_before = 0
        self._sockets: list[socket.socket] = []

    def pass_on(self, listener: socket.socket, target: tuple[str, int]) -> None:
        """Each connection of `listener` continues to `target`."""
        self._served = 0
        self._start(listener, self._accept_for, target)

    def refuse(self, listener: socket.socket) -> None:
        """An HTTP proxy that answers 403 and notes the host."""
        self._start(listener, self._accept_refusing)

    def know_no_name(self, server: socket.socket) -> None:
        """A DNS server on a UDP socket."""
        self._start(server, self._answer_names)

    def count_packets(self, descriptors: list[int]) -> None:
        """`descriptors` of the kernel's counters, open for reading; closed by `close`."""
        self._counters = descriptors
        self._packets_before = _no_routes(descriptors)

    def report(self) -> Report:
        with self._lock:
            refused = [Attempt(host, port, count) for (host, port), count in self._refused.most_common()]
            served = self._served
        lost = _no_routes(self._counters) - self._packets_before
        return Report(served, refused + ([Attempt(UNKNOWN, None, lost)] if lost > 0 else []))

    def close(self) -> None:
        for opened in self._sockets:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for descriptor in self._counters:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._counters = []

    def _start(self, server: socket.socket, serve: Any, *arguments: Any) -> None:
        self._sockets.append(server)
        threading.Thread(target=serve, args=(server, *arguments), daemon=True).start()

    def _count(self, host: str, port: int | None) -> None:
        with self._lock:
            self._refused[host, port] += 1

    def _accept_for(self, listener: socket.socket, target: tuple[str, int]) -> None:
        while (connection := _accept(listener)) is not None:
            with self._lock:
                self._served = (self._served or 0) + 1
            threading.Thread(target=_join, args=(connection, target), daemon=True).start()

    def _accept_refusing(self, listener: socket.socket) -> None:
        while (connection := _accept(listener)) is not None:
            threading.Thread(target=self._refuse_one, args=(connection,), daemon=True).start()

    def _refuse_one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_PATIENCE_S)
            head = b""
            while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
                piece = connection.recv(4096)
                if not piece:
                    break
                head += piece
            wanted = wanted_of(head)
            if wanted is not None:
                self._count(*wanted)
            connection.sendall(b"HTTP/1.1 403 Sealed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    def _answer_names(self, server: socket.socket) -> None:
        while True:
            try:
                query, client = server.recvfrom(4096)
            except OSError:
                return
            if client is None:  # the socket was shut down
                return
            name, end = _question(query)
            if name and name != "localhost":
                self._count(name, None)
            flags = (0x8180 | NO_SUCH_NAME).to_bytes(2, "big")
            with contextlib.suppress(OSError):
                server.sendto(query[:2] + flags + b"\x00\x01" + b"\x00" * 6 + query[12:end], client)


def wanted_of(head: bytes) -> tuple[str, int | None] | None:
    """Host and port that the head of a request to a proxy names; None when it is no such request."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) < 2:
        return None
    method, target = words[0], words[1]
    default = 443 if method == "CONNECT" or target.startswith("https:") else 80
    place = target.partition("://")[2] or target
    place = place.split("/", 1)[0].rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = place, str(default)
    return (host.strip("[]"), int(port)) if host else None


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except OSError:
        return None


def _join(connection: socket.socket, target: tuple[str, int]) -> None:
    try:
        onward = socket.create_connection(target, timeout=_PATIENCE_S)
    except OSError:
        connection.close()
        return
    onward.settimeout(None)
    for opened in (connection, onward):
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_copy, args=(onward, connection), daemon=True)
    back.start()
    _copy(connection, onward)
    back.join()
    connection.close()
    onward.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until the end of `source`, which is passed on; the other direction goes on unless the connection broke."""
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for opened in (source, target):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


def _question(query: bytes) -> tuple[str, int]:
    """The name a DNS query asks for, and where the question ends. ("", 12) for bytes that hold none."""
    labels, at = [], 12
    while at < len(query) and query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode(errors="replace"))
        at += query[at] + 1
    return (".".join(labels), at + 5) if at + 5 <= len(query) else ("", 12)


def _no_routes(descriptors: list[int]) -> int:
    """Packets that found no route, from the texts of /proc/net/snmp and /proc/net/snmp6."""
    total = 0
    for descriptor in descriptors:
        try:
            lines = os.pread(descriptor, 65536, 0).decode().splitlines()
        except OSError:
            continue
        rows = [line.split() for line in lines if line.startswith("Ip:")]
        if len(rows) == 2:
            total += int(dict(zip(rows[0], rows[1], strict=True)).get("OutNoRoutes", "0"))
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Ip6OutNoRoutes"))
    return total
