"""Ports for servers of tests, each given once: what the system hands out itself may be somebody else's a moment later."""

from __future__ import annotations

import itertools
import random
import socket

FIRST, COUNT = 12_000, 20_000  # below the ports that clients get
_ports = itertools.count(random.randrange(COUNT))
_names: list[socket.socket] = []  # for the life of this process


def free_port() -> int:
    """One that nobody listens on, and that no other test on this machine gets as long as this process lives."""
    for _ in range(COUNT):
        port = FIRST + next(_ports) % COUNT
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0ft-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        _names.append(name)
        return port
    raise OSError("every port for tests is taken")
