"""While a tool runs or a person reads: the next prompt, as far as it is known, is computed before it is asked for.

A prediction is never trusted: the next request is matched token by token, so a wrong one costs idle time only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from array import array
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import FtError
from engine.front.lines import Expected, Line, Sent, common_prefix
from engine.front.metrics import Metrics
from engine.front.plans import Plan
from engine.front.seam import Backend
from engine.protocol import EditPoint, Submit

MODES = ("auto", "on", "off")
POWER = Path("/sys/class/power_supply")
_BATTERY_LOOK_S = 30.0
_SILENCE_S = 3600.0
_LOG = logging.getLogger("engine.front")

OffLoop = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Counts:
    """Tokens: computed ahead, of them used by a request, of them of no use to the request that came. And submits."""

    submitted: int = 0
    computed: int = 0
    used: int = 0
    wasted: int = 0


class Anticipation:
    """Predicts and submits, at the lowest priority. All methods are called from the event loop."""

    def __init__(self, mode: str, supervisor: Backend, metrics: Metrics, power: Path = POWER) -> None:
        self.mode = mode
        self.counts = Counts()
        self._supervisor = supervisor
        self._metrics = metrics
        self._power = power
        self._battery = False
        self._battery_seen = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def allowed(self) -> bool:
        """Whether work may be done ahead now: the switch, the worker, and mains power."""
        if self.mode == "off" or self._closed or self._supervisor.worker.state != "ready":
            return False
        return self.mode == "on" or not self._on_battery()

    def begin(self, off_loop: OffLoop, line: Line, sent: Sent, plan: Callable[[], list[Plan]]) -> None:
        """A reply to `sent` is complete, or more is known of what follows it: `plan` that, beside the loop, and compute it if
        allowed. Replaces what was planned for the line before."""
        if self._closed:
            return
        line.plans += 1
        self._start(self._anticipate(off_loop, line, sent, plan, line.plans))

    def begins(self, name: str, tokens: array[int]) -> None:
        """A session called `name` was made, whose first prompt is likely to begin with `tokens`."""
        if self.allowed():
            head = Expected("", "head.end", "", tokens)
            plan = Plan(head, [EditPoint(len(tokens), "head", edge="head.end")])
            self._start(self._compute(Line(name), plan, supersedes=False))

    def goes_on(self, name: str, tokens: array[int]) -> asyncio.Future[Mapping[str, Any]] | None:
        """A session called `name` goes on behind `tokens`, which are brought back. What the worker says when that is done, before
        it computes the rest; None when nothing may be done ahead."""
        if not self.allowed():
            return None
        told: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        plan = Plan(Expected("", "", "", tokens), [EditPoint(len(tokens), "live")])
        self._start(self._compute(Line(name), plan, supersedes=False, told=told))
        return told

    def arrived(self, line: Line, tokens: array[int]) -> None:
        """A request of this line came: what was being computed for another continuation is dropped."""
        for rid, ahead in list(line.background.items()):
            if common_prefix(ahead, tokens) < len(ahead):
                self._supervisor.cancel(rid)

    def close(self) -> None:
        """Nothing is computed ahead any more."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()

    def json(self) -> dict[str, Any]:
        counts = self.counts
        return {
            "mode": self.mode,
            "allowed": self.allowed(),
            "submitted": counts.submitted,
            "computed": counts.computed,
            "used": counts.used,
            "wasted": counts.wasted,
        }

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _anticipate(
        self, off_loop: OffLoop, line: Line, sent: Sent, plan: Callable[[], list[Plan]], number: int
    ) -> None:
        try:
            plans = await off_loop(plan)
        except FtError as error:
            _LOG.info("nothing is anticipated for %s: %s", line.key, error)
            return
        if line.plans != number:
            return
        sent.expected = [one.expected for one in plans]
        if not self.allowed() or not line.sent or line.sent[-1] is not sent:
            return
        fresh = [p for p in plans if common_prefix(p.expected.tokens, sent.tokens) < len(p.expected.tokens)]
        for rid in list(line.background):
            self._supervisor.cancel(rid)
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(fresh):
                group.create_task(self._compute(line, one, supersedes=number == 0))

    async def _compute(
        self, line: Line, plan: Plan, supersedes: bool, told: asyncio.Future[Mapping[str, Any]] | None = None
    ) -> None:
        rid = "ant" + secrets.token_hex(12)
        submit = Submit(
            rid=rid,
            tokens=list(plan.expected.tokens),
            max_tokens=0,
            session=line.key,
            edit_points=plan.edit_points,
            priority="background",
            supersedes=supersedes,
        )
        line.background[rid] = plan.expected.tokens
        try:
            pending = self._supervisor.submit(submit)
            self.counts.submitted += 1
            while True:
                message = await pending.get(_SILENCE_S)
                if message is not None and message["t"] == "accepted" and told is not None and not told.done():
                    told.set_result(message)
                if message is not None and message["t"] == "done":
                    break
            computed = int(message["usage"]["new"])
            self.counts.computed += computed
            self._metrics.anticipated.inc(computed)
        except FtError as error:
            _LOG.info("anticipation for %s ended: %s", line.key, error)
        finally:
            line.background.pop(rid, None)
            with contextlib.suppress(FtError):
                self._supervisor.cancel(rid)

    def _on_battery(self) -> bool:
        now = time.monotonic()
        if now - self._battery_seen > _BATTERY_LOOK_S:
            self._battery_seen = now
            self._battery = on_battery(self._power)
        return self._battery


def on_battery(power: Path) -> bool:
    """Whether a battery is being drained. False where the system does not tell."""
    try:
        return any(_word(supply / "status") == "Discharging" for supply in power.iterdir() if _is_system(supply))
    except OSError:
        return False


def _is_system(supply: Path) -> bool:
    """A battery of the machine, not of a mouse or a headset."""
    return _word(supply / "type") == "Battery" and _word(supply / "scope") != "Device"


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
