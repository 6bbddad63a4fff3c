"""What the front's rooms share: one object, made once by the server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.front.acting import Acting
from engine.front.anticipation import Anticipation
from engine.front.console.grants import Grants
from engine.front.forecast import Forecast
from engine.front.heads import Heads
from engine.front.idle import Idle
from engine.front.joining import Computations
from engine.front.lines import Lines
from engine.front.metrics import Metrics
from engine.front.recorder import Recorder
from engine.front.records import EventBus, Records
from engine.front.seam import Backend
from engine.front.sessions import Sessions
from engine.memory.plan import Plan
from engine.prompt.language import Language

T = TypeVar("T")
VERSION = "0.1.0"


@dataclass(slots=True)
class Front:
    """The served model's language, what computes, and the books."""

    model: str
    language: Language
    sampling_defaults: dict[str, Any]
    planned_window: int
    supervisor: Backend
    sessions: Sessions
    records: Records
    bus: EventBus
    metrics: Metrics
    anticipation: Anticipation
    heartbeat_s: float
    heads: Heads
    plan: Plan | None = None  # of a worker of our own
    lines: Lines = field(default_factory=Lines)
    recorder: Recorder = field(default_factory=lambda: Recorder(None))
    forecast: Forecast = field(default_factory=lambda: Forecast(None, ""))
    port: int = 0
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    started: float = field(default_factory=time.time)
    idle: Idle = field(default_factory=Idle)
    acting: Acting = field(default_factory=Acting)
    grants: Grants = field(default_factory=Grants)  # of the web console
    max_requests: int = 512
    computations: Computations = field(init=False)
    stop_asked: asyncio.Event = field(default_factory=asyncio.Event)
    renderers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "render"))

    def __post_init__(self) -> None:
        self.computations = Computations(self.supervisor, self.max_requests)

    @property
    def window(self) -> int:
        """Tokens of prompt plus output that one request may have: the worker's word, the plan's until it is ready."""
        return self.supervisor.worker.window or self.planned_window

    @property
    def max_output(self) -> int:
        """The output limit that clients are told to ask for: an eighth of the window, within 256 and 32k tokens."""
        return max(256, min(32768, self.window // 8))

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run rendering or tokenising beside the event loop, so that long prompts delay no stream."""
        return await asyncio.get_running_loop().run_in_executor(self.renderers, work)

    async def close(self) -> None:
        """Stop the worker and the render threads."""
        self.anticipation.close()
        for session in self.sessions.all():
            self.heads.tails.keep(session.id, self.lines)
        with contextlib.suppress(asyncio.CancelledError):
            await self.supervisor.stop()
        self.renderers.shutdown(wait=False, cancel_futures=True)
