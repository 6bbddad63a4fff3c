"""The front's end of the worker's socket: one connection at a time, messages both ways, questions and their answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.protocol import VERSION, Decoder, encode

CLOSED = "The worker closed its connection."
_READ_BYTES = 1 << 16
Heard = Callable[[dict[str, Any]], None]
Lost = Callable[[str], None]


class Wire:
    """All methods are called from the front's event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._heard: Heard = lambda message: None
        self._lost: Lost = lambda why: None
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._number = 0
        self._silent = asyncio.Event()
        self._silent.set()

    async def open(self, heard: Heard, lost: Lost) -> None:
        """Listen, for this user alone. `heard` gets every message of the worker that is connected and raises for what is no
        message, `lost` gets the reason why no more can come from it."""
        self._heard, self._lost = heard, lost
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._connected, str(self.path))
        self.path.chmod(0o600)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)

    async def last_words(self, limit_s: float) -> None:
        """Of a worker that has ended: all that it had sent is heard."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._silent.wait(), limit_s)

    def hang_up(self) -> None:
        """Nothing more is read from the worker that is connected, and questions to it have no answer."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for future in self._asked.values():
            if not future.done():
                future.set_result(None)

    def number(self) -> int:
        """A new one for a question."""
        self._number += 1
        return self._number

    def send(self, message: dict[str, Any]) -> None:
        """Without a worker: nothing."""
        self.write(encode(message))

    def write(self, frame: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame)

    async def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """The answer with the number that the message gets; None without a worker, when it ends first, or after `timeout_s`."""
        if self._writer is None:
            return None
        n = self.number()
        future: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._asked[n] = future
        self.send({**message, "n": n})
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._asked.pop(n, None)

    def answered(self, message: dict[str, Any]) -> None:
        """The answer to the question with its number; one that nobody waits for any more is dropped."""
        future = self._asked.get(message["n"])
        if future is not None and not future.done():
            future.set_result(message)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            writer.close()
            return
        self._writer = writer
        self._silent.clear()
        decoder = Decoder()
        self.send({"t": "hello", "version": VERSION})
        why = CLOSED
        try:
            while (data := await reader.read(_READ_BYTES)) and self._writer is writer:
                for message in decoder.feed(data):
                    self._heard(message)
        except OSError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"The worker broke the protocol ({error})."
        finally:
            writer.close()
            self._silent.set()
        if self._writer is writer:  # else it was hung up on, and what it had is known to be lost
            self._lost(why)
