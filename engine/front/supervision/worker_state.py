"""What is known of the worker, and how others hear of it."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass

from engine.front.metrics import Metrics
from engine.front.records import EventBus

REPEAT_S = 0.5  # progress alone is published this seldom
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


class Board:
    """Keeps `worker` and publishes every change of its state."""

    def __init__(self, bus: EventBus, metrics: Metrics) -> None:
        self.worker = WorkerState(since=time.time())
        self._bus = bus
        self._metrics = metrics
        self._published = 0.0

    def set(self, state: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        worker = self.worker
        changed = state != worker.state or phase != worker.phase
        if state != worker.state:
            worker.since = time.time()
        worker.state, worker.phase, worker.done, worker.total = state, phase, done, total
        self._metrics.ready.set(1 if state == "ready" else 0)
        now = time.monotonic()
        if changed or now - self._published > REPEAT_S:
            self._published = now
            self._bus.publish("state", asdict(worker))

    def failed(self, code: str, message: str, hint: str) -> None:
        """Why the worker cannot serve; a `code` here is the worker's own word, which the next one would repeat."""
        self.worker.code, self.worker.message, self.worker.hint = code, message, hint

    def new_life(self) -> None:
        """What was said of the worker before this one does not hold for it."""
        worker = self.worker
        worker.code = worker.message = worker.hint = worker.warning = ""
        worker.serves = False

    def warn(self, text: str) -> None:
        _LOG.warning("%s", text)
        self.worker.warning = f"{self.worker.warning} {text}".strip()
        self._bus.publish("warning", {"message": text})

    def gone(self, code: str, message: str, restart_in_s: float) -> None:
        """The worker ended, and another one starts after `restart_in_s`."""
        self.worker.restarts += 1
        self._metrics.worker_restarts.inc()
        self._bus.publish("worker_gone", {"code": code, "message": message, "restart_in_s": restart_in_s})

    def event(self, kind: str, fields: dict[str, object]) -> None:
        """What the worker tells of itself."""
        self._bus.publish(kind, fields)
