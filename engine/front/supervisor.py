"""The worker's life: started, watched, restarted; and the requests that hang on it.

The front listens on `worker.sock` in the runtime folder and the worker connects, says hello and reports its state. A
request is sent once the worker is ready and waits until then. When the worker dies, stops moving or breaks the
protocol, every request it had gets an error that names the cause; those not yet sent wait for the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import WorkerGone
from engine.front.by_hand import ByHand, words
from engine.front.child import Child, OutOfMemory
from engine.front.continuity import Continuity
from engine.front.metrics import Metrics
from engine.front.pending import Pending, error_of
from engine.front.records import EventBus
from engine.front.watch import Watch
from engine.protocol import VERSION, Decoder, Submit, encode

BACKOFF_S = (1.0, 5.0, 25.0)
RESTART_WINDOW_S = 600.0
_TICK_S = 0.25
_READ_BYTES = 1 << 16
_LOG = logging.getLogger("engine.front")


@dataclass(slots=True)
class WorkerState:
    """What /ready tells. `state`: stopped starting loading warming ready crashed; `done` of `total` bytes or layers."""

    state: str = "stopped"
    phase: str = ""
    done: int = 0
    total: int = 0
    code: str = ""
    message: str = ""
    hint: str = ""
    window: int = 0
    kv_tokens: int = 0
    pid: int = 0
    restarts: int = 0
    since: float = 0.0
    was_ready: bool = False  # it, or one before it
    serves: bool = False  # requests go to it, which they may before all of its weights are there
    warning: str = ""  # what a worker that serves does not do as the one before it did


class Supervisor:
    """Owns the worker process and its socket. All methods are called from the front's event loop."""

    def __init__(
        self,
        arguments: Sequence[str],
        socket: Path,
        log: Path | None,
        bus: EventBus,
        metrics: Metrics,
        stall_s: float = 60.0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.worker = WorkerState(since=time.time())
        self._arguments = list(arguments)
        self._socket = socket
        self._log = log
        self._bus = bus
        self._metrics = metrics
        self._stall_s = stall_s
        self._environ = environ
        self._pending: dict[str, Pending] = {}
        self._asked: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._asked_n = 0
        self._by_hand = ByHand(socket.parent, arguments)
        self._continuity = Continuity()
        self._backend = ""
        self._whole = False  # whether this worker has said that it is ready
        self._again: dict[int, dict[str, Any]] | None = (
            None  # set again and not answered, by number; None: not yet sent
        )
        self._writer: asyncio.StreamWriter | None = None
        self._child: Child | None = None
        self._lost: asyncio.Future[WorkerGone] | None = None
        self._last_message = 0.0
        self._last_reported = 0.0
        self._restarts: deque[float] = deque()
        self.paused = False
        self._stopping = False
        self._ended = asyncio.Event()

    # Requests

    def submit(self, submit: Submit) -> Pending:
        """Hand a request to the worker, now or as soon as it is ready. Raises WorkerGone when no worker will come, and
        BadRequest when the request cannot be sent; nothing is kept of it then."""
        if self.worker.state == "crashed" or self._stopping:
            raise self._crash_error()
        pending = Pending(submit)
        self._pending[submit.rid] = pending
        if self.worker.serves and not self.paused:
            self._send_pending(pending)
        return pending

    def pause(self, on: bool) -> None:
        """Keep what comes from now on, as if the worker were not ready; or send what was kept."""
        self.paused = on
        if self.worker.serves:
            self._send_waiting()

    def cancel(self, rid: str) -> None:
        """Stop a request; what it computed stays in the worker's cache. Unknown ids are ignored."""
        pending = self._pending.get(rid)
        if pending is None:
            return
        if pending.sent:
            self._send({"t": "cancel", "rid": rid})
        else:
            del self._pending[rid]

    def forget(self, session: str) -> None:
        """Have what only this session has on disk removed; a worker that starts finds it removed by whoever asked."""
        self._send({"t": "forget", "session": session})

    def running(self) -> int:
        """Requests that the worker has and has not finished, and those that wait for it."""
        return len(self._pending)

    def restarts_left(self) -> int:
        """How many more ends of a worker, within what is remembered of them, are answered by a new one."""
        since = time.monotonic() - RESTART_WINDOW_S
        return len(BACKOFF_S) - sum(at >= since for at in self._restarts)

    def cannot(self) -> dict[str, str]:
        """What the worker does not do although the front could: nothing."""
        return {}

    async def stats(self, timeout_s: float = 2.0) -> dict[str, Any] | None:
        """The worker's own snapshot; None when there is none within `timeout_s`."""
        answer = await self._ask({"t": "stats"}, timeout_s)
        return None if answer is None else dict(answer["data"])

    async def memory(self, timeout_s: float = 30.0, **asked: Any) -> dict[str, Any] | None:
        """What the worker says to a `memory` message with the fields `asked`, sent once it is ready; None while it has not
        answered after `timeout_s`: what was asked of it is done all the same. Raises its refusal, and WorkerGone when it is gone."""
        until = time.monotonic() + timeout_s
        while not self.worker.serves:
            if self.worker.state == "crashed" or self._stopping:
                raise self._crash_error()
            if time.monotonic() > until:
                return None
            await asyncio.sleep(_TICK_S)
        pid = self.worker.pid
        answer = await self._ask({"t": "memory", **asked}, max(_TICK_S, until - time.monotonic()))
        if answer is None:
            if self.worker.pid != pid or not self.worker.serves:
                raise WorkerGone("The worker ended before it answered.", "It is restarted; ask again.")
            if asked.get("op") == "apply":
                self._by_hand.keep(asked)  # it will be done; should it be refused instead, a restart says so
            return None
        if "error" in answer:
            raise error_of(answer["error"])
        if asked.get("op") == "apply":
            self._by_hand.keep(asked)
        return dict(answer["data"])

    async def _ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """The answer with the number that the message gets; None without a worker, when it ends first, or after `timeout_s`."""
        if self._writer is None:
            return None
        self._asked_n += 1
        n = self._asked_n
        future: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._asked[n] = future
        self._send({**message, "n": n})
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._asked.pop(n, None)

    # Life

    async def run(self) -> None:
        """Keep a worker alive until `stop`, or until it is beyond restarting (state `crashed`)."""
        self._socket.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._connected, str(self._socket))
        self._socket.chmod(0o600)
        try:
            while not self._stopping:
                gone = await self._one_life()
                if self._stopping or not await self._may_restart(gone):
                    break
        finally:
            server.close()
            self._socket.unlink(missing_ok=True)
            self._ended.set()

    async def stop(self, drain_s: float = 8.0) -> None:
        """Let the worker finish and write what it keeps on disk for `drain_s`, then end it: shutdown message, SIGTERM,
        SIGKILL."""
        self._stopping = True
        child = self._child
        if child is not None:
            self._send({"t": "shutdown", "drain_s": drain_s})
            for wait_s, number in ((drain_s + 2.0, signal.SIGTERM), (3.0, signal.SIGKILL)):
                try:
                    await asyncio.wait_for(self._ended.wait(), wait_s)
                    break
                except TimeoutError:
                    child.kill(number)
            await self._ended.wait()
        self._set("stopped")

    def kill(self) -> None:
        """End the worker at once; for a front that cannot stay."""
        if self._child is not None:
            self._child.kill()

    async def _one_life(self) -> WorkerGone:
        """Start a worker and return why it ended."""
        self._lost = asyncio.get_running_loop().create_future()
        self.worker.code = self.worker.message = self.worker.hint = self.worker.warning = ""
        self._again, self._whole, self.worker.serves = None, False, False
        self._set("starting", phase="start")
        arguments = [*self._arguments, *self._continuity.arguments(), "--socket", str(self._socket)]
        child = await Child.start(arguments, self._log, self._environ)
        self._child = child
        self.worker.pid = child.pid
        self._last_message = time.monotonic()
        exited = asyncio.create_task(child.wait())
        watcher = asyncio.create_task(self._watch(child))
        try:
            ends: set[asyncio.Future[Any]] = {exited, self._lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                # A closed connection is usually the first sign of an exit whose code says more.
                await asyncio.wait({exited}, timeout=1.0 if self._closed_by_peer() else 0.0)
            forced = not exited.done()
        finally:
            watcher.cancel()
            child.kill()  # also what the worker itself may have started
        code = await exited
        self._child = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        gone = self._lost.result() if self._lost.done() and forced else child.explain(code)
        if not self._stopping:
            _LOG.error("worker %d is gone%s: %s", child.pid, ", killed" if forced else "", gone.message)
        self.worker.serves = False
        self._fail(gone, sent_only=True)
        return gone

    async def _may_restart(self, gone: WorkerGone) -> bool:
        """Count and wait out one restart; False, with everything pending failed, when there shall be none."""
        now = time.monotonic()
        while self._restarts and now - self._restarts[0] > RESTART_WINDOW_S:
            self._restarts.popleft()
        failed = bool(self.worker.code)  # the worker said itself that it cannot serve: the next one would say the same
        pointless = isinstance(gone, OutOfMemory) and not self.worker.was_ready
        if failed or pointless or len(self._restarts) >= len(BACKOFF_S):
            if not failed:
                hint = gone.hint if isinstance(gone, OutOfMemory) else "ft engine restart"
                self.worker.code, self.worker.message, self.worker.hint = gone.code, gone.message, hint
            self._set("crashed")
            self._fail(self._crash_error(), sent_only=False)
            return False
        wait_s = BACKOFF_S[len(self._restarts)]
        self._restarts.append(now)
        self.worker.restarts += 1
        self._metrics.worker_restarts.inc()
        self._bus.publish("worker_gone", {"code": gone.code, "message": gone.message, "restart_in_s": wait_s})
        self._set("starting", phase=f"restart: {gone.message}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop_asked(), wait_s)
        return not self._stopping

    async def _stop_asked(self) -> None:
        while not self._stopping:
            await asyncio.sleep(_TICK_S)

    async def _watch(self, child: Child) -> None:
        """Declare the worker lost when it has work and neither speaks nor moves."""
        watch = Watch(self._stall_s, time.monotonic())
        while True:
            await asyncio.sleep(_TICK_S)
            ready = self.worker.state == "ready"
            if ready and not any(p.sent for p in self._pending.values()):
                self._last_message = time.monotonic()
            why = watch.look(time.monotonic(), self._last_message, child.movement(), ready)
            if why:
                self._lose(f"The worker {why}.")

    # The wire

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None or self._lost is None:
            writer.close()
            return
        self._writer = writer
        decoder = Decoder()
        self._send({"t": "hello", "version": VERSION})
        try:
            while data := await reader.read(_READ_BYTES):
                for message in decoder.feed(data):
                    self._last_message = time.monotonic()
                    self._handle(message)
            self._lose(_CLOSED)
        except OSError:
            self._lose(_CLOSED)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._lose(f"The worker broke the protocol ({error}).")
        finally:
            writer.close()

    def _handle(self, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind in ("accepted", "progress", "tokens", "done", "error"):
            pending = self._pending.get(message["rid"])
            if pending is None:
                return
            if kind == "error":
                pending.put(error_of(message))
            else:
                pending.put(message)
            if kind in ("done", "error"):
                del self._pending[message["rid"]]
        elif kind == "state":
            self._report(message)
        elif kind == "memory" and self._again and message["n"] in self._again:
            self._was_set_again(message)
        elif kind in ("stats", "memory"):
            future = self._asked.get(message["n"])
            if future is not None and not future.done():
                future.set_result(message)
        elif kind == "hello":
            if message["version"] != VERSION:
                # Every worker from now on is of that other version: this process cannot serve any more.
                self.worker.code = WorkerGone.code
                self.worker.message = (
                    f"ft was updated while the engine ran: its new worker speaks version {message['version']} of their "
                    f"protocol, the engine {VERSION}."
                )
                self.worker.hint = "Restart the engine: ft engine restart"
                self._lose(self.worker.message)
        elif kind == "event":
            data = {k: v for k, v in message.items() if k not in ("t", "kind")}
            self._bus.publish(str(message["kind"]), data)
        else:
            raise ValueError(f"unknown message {kind!r}")

    def _report(self, message: dict[str, Any]) -> None:
        state = message["state"]
        if state == "failed":
            self.worker.code = message.get("code") or WorkerGone.code
            self.worker.message = message.get("message") or "The worker failed."
            self.worker.hint = message.get("hint") or ""
            return
        if serves := state == "ready" or bool(message.get("serves")):
            window, self.worker.kv_tokens = int(message["window"]), int(message["kv_tokens"])
            self._backend = str(message.get("backend") or "")
            if self.worker.serves and window != self.worker.window:
                self._continuity.moved(window)
            self.worker.window = window
            if self._again is None:
                self._set_again()
        if state == "ready":
            self._whole = True
            if self._again:
                self._set("warming", phase="what was set by hand")
                return
        counts = {"done": int(message.get("done") or 0), "total": int(message.get("total") or 0)}
        self._set(state, phase=str(message.get("phase") or state), **counts)
        if serves and not self._again:
            self._serves()

    def _set_again(self) -> None:
        """Ask a new worker for what was set by hand, before anything else; it counts as ready when it has answered."""
        self._again = {}
        for order in self._by_hand.orders():
            self._asked_n += 1
            self._again[self._asked_n] = order
            self._send({"t": "memory", "op": "apply", **order, "again": True, "n": self._asked_n})

    def _was_set_again(self, message: dict[str, Any]) -> None:
        assert self._again is not None
        order = self._again.pop(message["n"])
        if "error" in message:
            self._by_hand.forget(order)
            why = error_of(message["error"]).message
            self._warn(f"What was set by hand ({words(order)}) is lost with the worker that had it: {why}")
        if not self._again:
            if self._whole:
                self._set("ready", phase="ready")
            self._serves()

    def _serves(self) -> None:
        """What a worker that requests go to has is compared with what the one before it had."""
        if not self.worker.serves:
            self.worker.serves = True
            for text in self._continuity.serves(self.worker.window, self._backend):
                self._warn(text)
        self.worker.was_ready |= self._whole
        self._send_waiting()

    def _warn(self, text: str) -> None:
        _LOG.warning("%s", text)
        self.worker.warning = f"{self.worker.warning} {text}".strip()
        self._bus.publish("warning", {"message": text})

    def _send_waiting(self) -> None:
        if self.paused:
            return
        for pending in list(self._pending.values()):
            if not pending.sent:
                self._send_pending(pending)

    def _send_pending(self, pending: Pending) -> None:
        pending.sent = True
        if not any(p.sent for p in self._pending.values() if p is not pending):
            self._last_message = time.monotonic()
        self._write(pending.frame)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(encode(message))

    def _write(self, frame: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame)

    def _lose(self, why: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(WorkerGone(why, "It is restarted; send the request again."))

    def _closed_by_peer(self) -> bool:
        return self._lost is not None and self._lost.done() and self._lost.result().message == _CLOSED

    def _fail(self, error: WorkerGone, sent_only: bool) -> None:
        for rid, pending in list(self._pending.items()):
            if pending.sent or not sent_only:
                del self._pending[rid]
                pending.put(error)
        for future in self._asked.values():
            if not future.done():
                future.set_result(None)

    def _crash_error(self) -> WorkerGone:
        message = self.worker.message or "The engine is stopping."
        return WorkerGone(message, self.worker.hint)

    def _set(self, state: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        changed = state != self.worker.state or phase != self.worker.phase
        if state != self.worker.state:
            self.worker.since = time.time()
        self.worker.state, self.worker.phase, self.worker.done, self.worker.total = state, phase, done, total
        self._metrics.ready.set(1 if state == "ready" else 0)
        now = time.monotonic()
        if changed or now - self._last_reported > 0.5:
            self._last_reported = now
            self._bus.publish("state", asdict(self.worker))


_CLOSED = "The worker closed its connection."
