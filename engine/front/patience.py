"""Connections on which a request does not get on: a head that never ends, or a body that is none."""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 60.0  # from the first byte of a head to its last, and from a connection's begin to its first byte
MOST_FILES = 1 << 16


class PatientProtocol(H11Protocol):
    """Closes a connection whose head is late. One that waits for its next request is not touched: that has a limit of its own."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._begin()
        else:
            self._end()

    def send_400_response(self, msg: str) -> None:
        """Of what is no HTTP. Whoever was to answer the request that it stands in has nobody to answer any more."""
        super().send_400_response(msg)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _begin(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(HEAD_S, self.transport.close)

    def _end(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def allow_many_connections() -> None:
    """Each takes a file; the usual limit is 1,024 of a much higher one that any process may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
