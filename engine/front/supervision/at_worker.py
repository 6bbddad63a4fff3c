"""The requests that hang on the worker: those it has, and those that wait for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import FtError
from engine.front.supervision.pending import Pending, error_of
from engine.front.supervision.wire import Wire
from engine.protocol import Submit

ANSWERS = ("accepted", "progress", "tokens", "done", "error")


class AtWorker:
    """`began` is called when the worker gets its first request after it had none."""

    def __init__(self, wire: Wire, began: Callable[[], None]) -> None:
        self._wire = wire
        self._began = began
        self._pending: dict[str, Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def works(self) -> bool:
        """The worker has one."""
        return any(pending.sent for pending in self._pending.values())

    def add(self, submit: Submit) -> Pending:
        """Raises BadRequest when it cannot be sent; nothing is kept of it then."""
        pending = Pending(submit)
        self._pending[submit.rid] = pending
        return pending

    def send(self) -> None:
        """All that wait, oldest first."""
        for pending in list(self._pending.values()):
            if not pending.sent:
                if not self.works:
                    self._began()
                pending.sent = True
                self._wire.write(pending.frame)

    def cancel(self, rid: str) -> None:
        """Unknown ids are ignored."""
        pending = self._pending.get(rid)
        if pending is None:
            return
        if pending.sent:
            self._wire.send({"t": "cancel", "rid": rid})
        else:
            del self._pending[rid]

    def answered(self, message: dict[str, Any]) -> None:
        """One of ANSWERS; to a request that is gone: nothing."""
        pending = self._pending.get(message["rid"])
        if pending is None:
            return
        kind = message["t"]
        pending.put(error_of(message) if kind == "error" else message)
        if kind in ("done", "error"):
            del self._pending[message["rid"]]

    def fail(self, error: FtError, sent: bool = True, waiting: bool = True) -> None:
        """End those that the worker has, those that wait, or all of them, with this error."""
        for rid, pending in list(self._pending.items()):
            if sent if pending.sent else waiting:
                del self._pending[rid]
                pending.put(error)
