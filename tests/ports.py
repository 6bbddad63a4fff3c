"""Ports for servers of tests, each given once: what the system hands out itself may be somebody else's a moment later."""

from __future__ import annotations

import itertools
import os
import random
import socket

FIRST, EACH, PROCESSES = 12_000, 2_500, 8  # below the ports that clients get
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
_ports = itertools.count(random.randrange(EACH))


def free_port() -> int:
    """One that nobody listens on, of those that belong to this process of a test run."""
    for _ in range(EACH):
        port = FIRST + _process * EACH + next(_ports) % EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("every port for tests is taken")
