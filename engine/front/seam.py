"""What the front asks of whatever computes: a worker process of our own, or servers somewhere else."""

from __future__ import annotations

from typing import Any, Protocol

from engine.front.supervision.pending import Pending
from engine.front.supervision.worker_state import WorkerState
from engine.protocol import Submit


class Backend(Protocol):
    """All methods are called from the front's event loop. `worker` is what /ready tells of it."""

    worker: WorkerState
    paused: bool

    def submit(self, submit: Submit) -> Pending:
        """Take a request. Raises FtError when it cannot be served; nothing is kept of it then."""

    def cancel(self, rid: str) -> None:
        """Stop a request. Unknown ids are ignored."""

    def pause(self, on: bool) -> None:
        """While on, requests that come are kept and not computed. Raises Unsupported."""

    def restarts_left(self) -> int | None:
        """How often it may still be started again by itself; None: it is not ours to start."""

    def forget(self, session: str) -> None:
        """Remove what only this session has on disk."""

    def running(self) -> int:
        """Requests taken and not finished."""

    async def stats(self, timeout_s: float = 2.0) -> dict[str, Any] | None:
        """A snapshot; None when there is none within `timeout_s`."""

    async def memory(self, timeout_s: float = 30.0, **asked: Any) -> dict[str, Any] | None:
        """Ask for the map of its memory, or for a change; None when there is no answer within `timeout_s`. Raises FtError."""

    async def run(self) -> None:
        """Keep it alive until `stop`, or until that is pointless (state `crashed`)."""

    def drain(self) -> None:
        """It is about to be stopped: what it computes goes on, everything else is refused."""

    async def stop(self, drain_s: float = 8.0) -> None:
        """End it, running work given `drain_s`."""

    def kill(self) -> None:
        """End it at once."""

    def cannot(self) -> dict[str, str]:
        """What this backend does not do although the front could: name to reason. Empty for a worker of our own."""
