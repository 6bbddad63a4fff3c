"""The worker's life: started, watched, restarted, ended; and the requests that hang on it.

The front listens on `worker.sock` in the runtime folder and the worker connects, says hello and reports its state. Requests
are sent once it serves and wait until then. When it dies, stops moving or breaks the protocol, every request it had gets
an error that names the cause; those not yet sent wait for the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import WorkerGone
from engine.front.metrics import Metrics
from engine.front.records import EventBus
from engine.front.supervision import orphan
from engine.front.supervision.at_worker import AtWorker
from engine.front.supervision.by_hand import ByHand
from engine.front.supervision.child import Child, OutOfMemory
from engine.front.supervision.hearing import Hearing
from engine.front.supervision.pending import Pending, error_of
from engine.front.supervision.restarts import Restarts
from engine.front.supervision.watch import Watch
from engine.front.supervision.wire import CLOSED, Wire
from engine.front.supervision.worker_state import Board
from engine.protocol import Submit

_TICK_S = 0.25
_LAST_WORDS_S = 1.0  # what a worker sent before it ended is read within this
_LOG = logging.getLogger("engine.front")


class Supervisor:
    """Owns the worker process and its socket. All methods are called from the front's event loop."""

    def __init__(
        self, arguments: Sequence[str], socket: Path, log: Path | None, bus: EventBus, metrics: Metrics,
        stall_s: float = 60.0, environ: Mapping[str, str] = os.environ,
    ) -> None:  # fmt: skip
        self._board = Board(bus, metrics)
        self.worker = self._board.worker
        self.paused = False
        self._draining = False
        self._arguments = list(arguments)
        self._log = log
        self._stall_s = stall_s
        self._environ = environ
        self._wire = Wire(socket)
        self._requests = AtWorker(self._wire, self._speaks)
        self._by_hand = ByHand(socket.parent, arguments)
        self._hearing = Hearing(self._board, self._wire, self._requests, self._by_hand, self._send_waiting, self._lose)
        self._restarts = Restarts()
        self._child: Child | None = None
        self._lost: asyncio.Future[WorkerGone] | None = None
        self._last_message = 0.0
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    def submit(self, submit: Submit) -> Pending:
        """Hand a request to the worker, now or as soon as it serves. Raises WorkerGone when no worker will come, and
        BadRequest when the request cannot be sent; nothing is kept of it then."""
        self._refuse_for_ever()
        pending = self._requests.add(submit)
        self._send_waiting()
        return pending

    def pause(self, on: bool) -> None:
        """Keep what comes from now on, as if the worker were not ready; or send what was kept."""
        self.paused = on
        self._send_waiting()

    def cancel(self, rid: str) -> None:
        """Stop a request; what it computed stays in the worker's cache. Unknown ids are ignored."""
        self._requests.cancel(rid)

    def forget(self, session: str) -> None:
        """Have what only this session has on disk removed; a worker that starts finds it removed by whoever asked."""
        self._wire.send({"t": "forget", "session": session})

    def running(self) -> int:
        """Requests that the worker has and has not finished, and those that wait for it."""
        return len(self._requests)

    def restarts_left(self) -> int:
        """How many more ends of a worker, within what is remembered of them, are answered by a new one."""
        return self._restarts.left(time.monotonic())

    def cannot(self) -> dict[str, str]:
        """What the worker does not do although the front could: nothing."""
        return {}

    async def stats(self, timeout_s: float = 2.0) -> dict[str, Any] | None:
        """The worker's own snapshot; None when there is none within `timeout_s`."""
        answer = await self._wire.ask({"t": "stats"}, timeout_s)
        return None if answer is None else dict(answer["data"])

    async def memory(self, timeout_s: float = 30.0, **asked: Any) -> dict[str, Any] | None:
        """What the worker says to a `memory` message with the fields `asked`, sent once it serves; None while it has not
        answered after `timeout_s`: what was asked of it is done all the same. Raises its refusal, and WorkerGone when it is gone."""
        until = time.monotonic() + timeout_s
        while not self.worker.serves:
            self._refuse_for_ever()
            if time.monotonic() > until:
                return None
            await asyncio.sleep(_TICK_S)
        pid = self.worker.pid
        answer = await self._wire.ask({"t": "memory", **asked}, max(_TICK_S, until - time.monotonic()))
        if answer is None and (self.worker.pid != pid or not self.worker.serves):
            raise WorkerGone("The worker ended before it answered.", "It is restarted; ask again.")
        if answer is not None and "error" in answer:
            raise error_of(answer["error"])
        if asked.get("op") == "apply":
            self._by_hand.keep(
                asked
            )  # without an answer it will be done; should it be refused instead, a restart says so
        return None if answer is None else dict(answer["data"])

    def _refuse_for_ever(self) -> None:
        if self.worker.state == "crashed" or self._draining or self._stopping.is_set():
            raise self._crash_error()

    async def run(self) -> None:
        """Keep a worker alive until `stop`, or until it is beyond restarting (state `crashed`)."""
        await self._wire.open(self._heard, self._lose)
        try:
            while not self._stopping.is_set():
                gone = await self._one_life()
                if self._stopping.is_set() or not await self._may_restart(gone):
                    break
        finally:
            self._wire.close()
            self._ended.set()

    def drain(self) -> None:
        """What the worker has goes on; what waits for it, and what comes, is refused."""
        self._draining = True
        self._requests.fail(self._crash_error(), sent=False)

    async def stop(self, drain_s: float = 8.0) -> None:
        """Let the worker finish and write what it keeps on disk for `drain_s`, then end it: shutdown message, SIGTERM,
        SIGKILL."""
        self._stopping.set()
        if child := self._child:
            self._wire.send({"t": "shutdown", "drain_s": drain_s})
            for wait_s, number in ((drain_s + 2.0, signal.SIGTERM), (3.0, signal.SIGKILL)):
                try:
                    await asyncio.wait_for(self._ended.wait(), wait_s)
                    break
                except TimeoutError:
                    child.kill(number)
            await self._ended.wait()
        self._board.set("stopped")

    def kill(self) -> None:
        """End the worker at once; for a front that cannot stay."""
        if child := self._child:
            child.kill()

    async def _one_life(self) -> WorkerGone:
        """Start a worker and return why it ended."""
        self._lost = asyncio.get_running_loop().create_future()
        self._board.new_life()
        self._hearing.new_life()
        self._board.set("starting", phase="start")
        arguments = [*self._arguments, *self._hearing.continuity.arguments(), "--socket", str(self._wire.path)]
        child = await Child.start(arguments, self._log, self._environ)
        self._child = child
        orphan.note(self._wire.path.parent, child.pid)
        self.worker.pid = child.pid
        self._speaks()
        exited = asyncio.create_task(child.wait())
        watcher = asyncio.create_task(self._watch(child))
        try:
            ends: set[asyncio.Future[Any]] = {exited, self._lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                # A closed connection is usually the first sign of an exit whose code says more.
                closed = self._lost.result().message == CLOSED
                await asyncio.wait({exited}, timeout=1.0 if closed else 0.0)
            forced = not exited.done()
        finally:
            watcher.cancel()
            child.kill()  # also what the worker itself may have started
        code = await exited
        self._child = None
        orphan.clear(self._wire.path.parent)
        await self._wire.last_words(_LAST_WORDS_S)
        self._wire.hang_up()
        gone = self._lost.result() if self._lost.done() and forced else child.explain(code)
        if not self._stopping.is_set():
            _LOG.error("worker %d is gone%s: %s", child.pid, ", killed" if forced else "", gone.message)
        self.worker.serves = False
        self._requests.fail(gone, waiting=False)
        return gone

    async def _may_restart(self, gone: WorkerGone) -> bool:
        """Count and wait out one restart; False, with everything pending failed, when there shall be none."""
        failed = bool(self.worker.code)  # the worker said itself that it cannot serve: the next one would say the same
        pointless = isinstance(gone, OutOfMemory) and not self.worker.was_ready
        wait_s = None if failed or pointless else self._restarts.next_wait(time.monotonic())
        if wait_s is None:
            if not failed:
                self._board.failed(gone.code, gone.message, gone.hint if pointless else "ft engine restart")
            self._board.set("crashed")
            self._requests.fail(self._crash_error())
            return False
        self._board.gone(gone.code, gone.message, wait_s)
        self._board.set("starting", phase=f"restart: {gone.message}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)
        return not self._stopping.is_set()

    async def _watch(self, child: Child) -> None:
        """Declare the worker lost when it has work and neither speaks nor moves."""
        watch = Watch(self._stall_s, time.monotonic())
        while True:
            await asyncio.sleep(_TICK_S)
            ready = self.worker.state == "ready"
            if ready and not self._requests.works:
                self._speaks()
            why = watch.look(time.monotonic(), self._last_message, child.movement(), ready)
            if why:
                self._lose(f"The worker {why}.")

    def _send_waiting(self) -> None:
        if self.worker.serves and not self.paused:
            self._requests.send()

    def _heard(self, message: dict[str, Any]) -> None:
        self._speaks()
        self._hearing.heard(message)

    def _speaks(self) -> None:
        self._last_message = time.monotonic()

    def _lose(self, why: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(WorkerGone(why, "It is restarted; send the request again."))

    def _crash_error(self) -> WorkerGone:
        return WorkerGone(self.worker.message or "The engine is stopping.", self.worker.hint)
