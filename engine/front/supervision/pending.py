"""A request at the worker, as the front waits for it."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from typing import Any

from engine.errors import BadRequest, FtError
from engine.protocol import Submit, encode


class WorkerError(FtError):
    """The worker refused or failed one request and lives on."""

    code = "FT-E0500 worker-error"


class Messages:
    """What the worker says of one request, for one reader. `get` hands it out, and an FtError when no more can come."""

    def __init__(self) -> None:
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


class Pending(Messages):
    """One submitted request, as its first reader sees it; others may `follow`."""

    def __init__(self, submit: Submit) -> None:
        """Raises BadRequest when it holds something that the wire cannot carry; the frame is made here for that."""
        super().__init__()
        self.submit = submit
        try:
            self.frame = encode(submit.message())
        except (OverflowError, TypeError, ValueError) as error:
            raise BadRequest(f"The request cannot be handed to the worker: {error}.") from None
        self.sent = False
        self.ended = False
        self._followers: list[Messages] = []
        self._accepted: dict[str, Any] | None = None
        self._progress: dict[str, Any] | None = None
        self._ids = array("I")
        self._logprobs: list[Any] = []

    def put(self, item: dict[str, Any] | FtError) -> None:
        super().put(item)
        for follower in self._followers:
            follower.put(item)
        if isinstance(item, FtError) or item["t"] == "done":
            self.ended = True
        elif item["t"] == "accepted":
            self._accepted = item
        elif item["t"] == "progress":
            self._progress = item
        elif item["t"] == "tokens":
            self._ids.extend(item["ids"])
            self._logprobs += item["logprobs"] or ()

    def follow(self) -> Messages:
        """Everything from the start, for another reader; what is past comes at once. Not for one that has `ended`."""
        follower = Messages()
        for past in (self._accepted, self._progress):
            if past is not None:
                follower.put(past)
        if self._ids:
            ids, logprobs = list(self._ids), list(self._logprobs)
            follower.put({"t": "tokens", "rid": self.submit.rid, "ids": ids, "logprobs": logprobs})
        self._followers.append(follower)
        return follower


def error_of(message: dict[str, Any]) -> FtError:
    """A worker's error message as an exception with its own stable code."""
    error = WorkerError(str(message.get("message") or "The worker failed."), str(message.get("hint") or ""))
    error.code = str(message.get("code") or WorkerError.code)
    return error
