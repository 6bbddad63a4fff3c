"""What the worker says, understood: answers to requests and questions, and the states it goes through until it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.errors import WorkerGone
from engine.front.supervision.at_worker import ANSWERS, AtWorker
from engine.front.supervision.by_hand import ByHand
from engine.front.supervision.continuity import Continuity
from engine.front.supervision.set_again import SetAgain
from engine.front.supervision.wire import Wire
from engine.front.supervision.worker_state import Board
from engine.protocol import VERSION


class Hearing:
    """`serves` is called whenever requests may go to the worker, `lose` when it cannot be of use any more."""

    def __init__(
        self,
        board: Board,
        wire: Wire,
        requests: AtWorker,
        by_hand: ByHand,
        serves: Callable[[], None],
        lose: Callable[[str], None],
    ) -> None:
        self.continuity = Continuity()
        self._board = board
        self._wire = wire
        self._requests = requests
        self._set_again = SetAgain(by_hand, wire, board.warn)
        self._on_serves = serves
        self._lose = lose
        self._backend = ""
        self._whole = False  # whether this worker has said that it is ready

    def new_life(self) -> None:
        """The next messages are another worker's."""
        self._whole = False
        self._set_again.new_life()

    def heard(self, message: dict[str, Any]) -> None:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is no message of the protocol."""
        kind = message["t"]
        if kind in ANSWERS:
            self._requests.answered(message)
        elif kind == "state":
            self._report(message)
        elif kind == "memory" and self._set_again.answered(message):
            self._is_set_again()
        elif kind in ("stats", "memory"):
            self._wire.answered(message)
        elif kind == "hello":
            self._greeted(message["version"])
        elif kind == "event":
            self._board.event(str(message["kind"]), {k: v for k, v in message.items() if k not in ("t", "kind")})
        else:
            raise ValueError(f"unknown message {kind!r}")

    def _greeted(self, version: int) -> None:
        if version != VERSION:
            # Every worker from now on is of that other version: this process cannot serve any more.
            said = (
                f"ft was updated while the engine ran: its new worker speaks version {version} of their protocol, "
                f"the engine {VERSION}."
            )
            self._board.failed(WorkerGone.code, said, "Restart the engine: ft engine restart")
            self._lose(said)

    def _report(self, message: dict[str, Any]) -> None:
        state, worker = message["state"], self._board.worker
        if state == "failed":
            why = message.get("message") or "The worker failed."
            self._board.failed(message.get("code") or WorkerGone.code, why, message.get("hint") or "")
            return
        if serves := state == "ready" or bool(message.get("serves")):
            window, worker.kv_tokens = int(message["window"]), int(message["kv_tokens"])
            self._backend = str(message.get("backend") or "")
            if worker.serves and window != worker.window:
                self.continuity.moved(window)
            worker.window = window
            self._set_again.ask()
        if state == "ready":
            self._whole = True
            if self._set_again.waits:
                self._board.set("warming", phase="what was set by hand")
                return
        counts = {"done": int(message.get("done") or 0), "total": int(message.get("total") or 0)}
        self._board.set(state, phase=str(message.get("phase") or state), **counts)
        if serves and not self._set_again.waits:
            self._serves()

    def _is_set_again(self) -> None:
        if not self._set_again.waits:
            if self._whole:
                self._board.set("ready", phase="ready")
            self._serves()

    def _serves(self) -> None:
        """What a worker that requests go to has is compared with what the one before it had."""
        worker = self._board.worker
        if not worker.serves:
            worker.serves = True
            for text in self.continuity.serves(worker.window, self._backend):
                self._board.warn(text)
        elif self._whole:
            self.continuity.chosen(self._backend)
        worker.was_ready |= self._whole
        self._on_serves()
