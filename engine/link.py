"""The worker's end of the socket to the front."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.protocol import Decoder, encode

log = logging.getLogger(__name__)


class Link:
    """The socket to the front. When it closes, from either side's view, the process ends: it has nobody to serve."""

    def __init__(self, path: Path) -> None:
        self._sending = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))

    def send(self, message: dict[str, Any]) -> None:
        """Thread-safe; blocks while the front does not read."""
        try:
            with self._sending:
                self._socket.sendall(encode(message))
        except OSError as failure:
            self._end(failure)

    def receive(self, handle: Callable[[dict[str, Any]], None]) -> None:
        """Hand every message to `handle`; never returns."""
        decoder = Decoder()
        try:
            while data := self._socket.recv(1 << 16):
                for message in decoder.feed(data):
                    handle(message)
        except OSError as failure:
            self._end(failure)
        except (ValueError, KeyError, TypeError) as failure:
            log.error("the front broke the protocol: %s", failure)
            os._exit(1)
        self._end(None)

    def _end(self, failure: OSError | None) -> None:
        # The main thread may sit in a long forward; there is nothing to clean up that the kernel does not.
        log.info("the front is gone: %s", failure or "it closed the socket")
        os._exit(0)
