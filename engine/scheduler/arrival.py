"""Weights that arrive while requests run, from the loop's side: when all are there a forward of our own shows that everything
works, and what cannot be read ends serving."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from engine.memory.arena import ArenaFull

AGAIN_S = 0.5  # after which memory for that forward is looked for again
ARRIVED = "arrived"


class Coming(Protocol):
    """See weights.background.Background."""

    unread_bytes: int

    def start(self, ended: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class NotLoaded(Exception):
    """What requests already ran on will not come to its end, because of `failure`."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Arrival:
    """`coming` None: everything is there. `finish` is runner.load.finish, given what frees so many pages; `post` reaches the
    loop from any thread, whose `arrived` then is called; `ready` is told when all is done."""

    def __init__(
        self,
        coming: Coming | None,
        finish: Callable[[], None],
        post: Callable[[dict[str, Any]], None],
        ready: Callable[[], None],
    ) -> None:
        self.coming = coming
        self._finish, self._post, self._ready = finish, post, ready

    def unread_bytes(self) -> int:
        """What has still to be filled of the memory that was planned for weights."""
        return 0 if self.coming is None else self.coming.unread_bytes

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Weights come within this block; what has not come at its end is dropped."""
        coming = self.coming
        if coming is None:
            yield
            return
        coming.start(self._tell)
        try:
            yield
        finally:
            coming.close()

    def arrived(self) -> None:
        """Call between two steps. Raises NotLoaded."""
        try:
            self._finish()
        except ArenaFull:  # requests that run hold everything
            again = threading.Timer(AGAIN_S, self._tell)
            again.daemon = True
            again.start()
            return
        except Exception as failure:  # every way loading can fail ends serving
            raise NotLoaded(failure) from failure
        self.coming = None
        self._ready()

    def _tell(self) -> None:
        self._post({"t": ARRIVED})
