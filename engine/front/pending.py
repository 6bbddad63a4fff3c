"""A request at the worker, as the front waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from engine.errors import BadRequest, FtError
from engine.protocol import Submit, encode


class WorkerError(FtError):
    """The worker refused or failed one request and lives on."""

    code = "FT-E0500 worker-error"


class Pending:
    """One submitted request. `get` hands out the worker's messages, and an FtError when it can bring no more."""

    def __init__(self, submit: Submit) -> None:
        """Raises BadRequest when it holds something that the wire cannot carry; the frame is made here for that."""
        self.submit = submit
        try:
            self.frame = encode(submit.message())
        except (OverflowError, TypeError, ValueError) as error:
            raise BadRequest(f"The request cannot be handed to the worker: {error}.") from None
        self.sent = False
        self._items: deque[dict[str, Any] | FtError] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: dict[str, Any] | FtError) -> None:
        self._items.append(item)
        self._arrived.set()

    async def get(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; None after `timeout_s` of silence. Raises the FtError that ended the request.

        Token messages that piled up come as one, so that a slow reader catches up.
        """
        if self._items:
            await asyncio.sleep(0)  # a stream with a backlog must not keep others, or its own end, waiting
        else:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        item = self._items.popleft()
        if isinstance(item, FtError):
            raise item
        while item["t"] == "tokens" and self._items:
            following = self._items[0]
            if isinstance(following, FtError) or following["t"] != "tokens":
                break
            self._items.popleft()
            logprobs = [*(item["logprobs"] or ()), *(following["logprobs"] or ())]
            item = {**item, "ids": [*item["ids"], *following["ids"]], "logprobs": logprobs}
        return item


def error_of(message: dict[str, Any]) -> FtError:
    """A worker's error message as an exception with its own stable code."""
    error = WorkerError(str(message.get("message") or "The worker failed."), str(message.get("hint") or ""))
    error.code = str(message.get("code") or WorkerError.code)
    return error
