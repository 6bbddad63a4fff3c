"""What the live source asks again and again, and how often: what is shown at its rate, the rest seldom or never."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ftagent.dashboard import views
from ftagent.dashboard.acting import Acting
from ftagent.dashboard.diffs import changed_files, diffs_of
from ftagent.dashboard.framing import frame_of
from ftagent.dashboard.http import Unreachable
from ftagent.dashboard.link import SLOW_S, Link
from ftagent.dashboard.model import Check, Frame, Part
from ftagent.dashboard.people import AT_WORK, Folder
from ftagent.local_engine.log import log_tail
from ftagent.session.leases import held_leases

SOON_S = 0.3
FOUND_S = 2.0  # until the first answers are there
CURVE = (0, 256, 1_024, 4_096, 16_384, 65_536)  # new tokens
USUAL = 4_096
RESUMES, NEXT_TOKENS = 10, 256  # sessions, and what they may send next
WHAT_IF_TOKENS = 32 << 10
LINES = 500


@dataclass(slots=True)
class Job:
    """Something asked again and again: each `every_s` while one of `parts` is shown, else each `else_s` (None: never)."""

    ask: Callable[[], Awaitable[None]]
    parts: tuple[Part, ...]
    every_s: float
    else_s: float | None
    local: bool = False  # needs no engine
    later: bool = False  # asks about what others have found
    hurried: bool = False  # asked soon after something has ended
    task: asyncio.Task[None] | None = None
    done_at: float = float("-inf")


class Questions(Acting):
    """Base of the live source."""

    def __init__(self, link: Link, fps: float) -> None:
        self.link = link
        self._folder = Folder(link.context.paths)
        self.jobs = [
            Job(self._ask_records, ("overview",), 1.0, 5.0, local=True),
            Job(self._ask_running, ("overview", "turns"), 1 / fps, 2.0),
            Job(self._ask_stats, ("overview", "engine", "anchors", "experts"), 1.0, 10.0),
            Job(self._ask_memory, ("overview", "memory"), 2.0, 15.0),
            Job(self._ask_sessions, ("overview",), 2.0, 5.0, hurried=True),
            Job(self._ask_life, ("overview", "engine"), 2.0, 5.0),
            Job(self._ask_power, ("overview", "engine", "memory"), 2.0, 10.0),
            Job(self._ask_what_ifs, ("overview", "memory"), 10.0, None, later=True),
            Job(self._ask_forecast, ("turns", "overview"), 10.0, None),
            Job(self._ask_resumes, ("overview",), 30.0, None, later=True),
            Job(self._ask_experts, ("experts",), 2.0, None),
            Job(self._read_log, ("logs",), 1.0, None, local=True),
            Job(self._check, ("doctor",), 60.0, None, local=True),
            Job(self._diff, ("overview",), 15.0, None, local=True, later=True),
        ]

    def frame(self) -> Frame:
        """As everything is known now."""
        return frame_of(self.link.gathered, self.link.clock(), self.offers())

    def start_jobs(self) -> None:
        """Those whose time has come."""
        now = time.monotonic()
        for job in self.jobs:
            every_s = self.wanted(job)
            idle = job.task is None or job.task.done()
            if job.later and job.task is None and every_s is not None and job.done_at == float("-inf"):
                job.done_at = now + FOUND_S - every_s
            if job.hurried and self.link.gathered.ended and every_s is not None:
                every_s = min(every_s, SOON_S)
            if every_s is not None and idle and now - job.done_at >= every_s:
                job.done_at = now
                job.task = asyncio.create_task(quietly(job.ask))

    def wanted(self, job: Job) -> float | None:
        """How often, of what is shown and is of use now."""
        if not job.local and self.link.http is None:
            return None
        return job.every_s if self.link.shown & set(job.parts) else job.else_s

    def again(self, part: Part) -> None:
        """See Source."""
        for job in self.jobs:
            if part in job.parts:
                job.done_at = float("-inf")

    def pace_of_running(self, fps: float) -> None:
        """What runs is asked for at the rate of the frames."""
        for job in self.jobs:
            if job.ask == self._ask_running:
                job.every_s = 1 / fps

    async def _ask_running(self) -> None:
        gathered = self.link.gathered
        if self.link.http is not None and (gathered.busy or not gathered.reachable):
            told = await self.link.http.get("/v1/requests?running=1") or {}
            gathered.running(told.get("requests") or [], self.link.clock())

    async def _ask_stats(self) -> None:
        if self.link.http is not None:
            answer = await self.link.http.get("/v1/stats")
            if answer is not None:
                self.link.gathered.stats(answer, self.link.clock())

    async def _ask_memory(self) -> None:
        await self.link.get("/v1/engine/memory", SLOW_S)

    async def _ask_sessions(self) -> None:
        """What changes while the answer is on its way is asked for again."""
        known = self.link.gathered
        if known.changed_sessions and self.link.http is not None:
            known.changed_sessions, known.ended, answer = False, False, None
            try:
                answer = await self.link.get("/v1/sessions")
            finally:
                known.changed_sessions |= known.busy or not answer

    async def _ask_life(self) -> None:
        """As `_ask_sessions`."""
        known = self.link.gathered
        if known.changed_life and self.link.http is not None:
            known.changed_life, answer = False, None
            try:
                answer = await self.link.get("/v1/engine/life")
            finally:
                known.changed_life |= known.busy or not answer

    async def _ask_power(self) -> None:
        """Not asked again of an engine that has no such thing."""
        gathered = self.link.gathered
        if "/v1/engine/power" in gathered.answers.at and not gathered.answers.get("/v1/engine/power").get("meters"):
            return
        await self.link.get("/v1/engine/power")

    async def _ask_experts(self) -> None:
        await self.link.get("/v1/engine/experts", SLOW_S)

    async def _ask_what_ifs(self) -> None:
        """32k tokens of KV more and less."""
        kv = self.link.gathered.answers.get("/v1/engine/memory").get("kv") or {}
        tokens, most = kv.get("tokens"), kv.get("most_tokens")
        if not tokens or not most:
            return
        step = min(WHAT_IF_TOKENS, max(1_024, tokens // 2 // 1_024 * 1_024))
        asked = [(f"KV +{step >> 10}k", tokens + step), (f"KV -{step >> 10}k", tokens - step)]
        found = [await self.what_if(label, kv_tokens=wanted) for label, wanted in asked if 256 < wanted <= most]
        self.link.gathered.what_ifs = tuple(found)

    async def _ask_forecast(self) -> None:
        if self.link.http is None:
            return
        window = self.link.gathered.answers.get("/v1/stats").get("window") or CURVE[-1]
        points = [n for n in CURVE if n < window] if "turns" in self.link.shown else [min(USUAL, window - 1)]
        answers = [await self.link.http.get(f"/v1/engine/forecast?new={n}") or {} for n in points]
        self.link.gathered.forecasts = tuple(answers)
        self.link.gathered.forecasts_at = self.link.clock()

    async def _ask_resumes(self) -> None:
        """What the next turn of the newest sessions that are not at work would wait for, warm and cold."""
        resting = [s for s in self.frame().sessions if s.status not in AT_WORK and s.context_tokens]
        found = {}
        for session in resting[:RESUMES]:
            warm = None
            if session.warm_tier in ("ram", "disk"):
                tier = "&tier=disk" if session.warm_tier == "disk" else ""
                warm = await self._ttft(f"new={NEXT_TOKENS}&cached={session.context_tokens}{tier}")
            found[session.id] = (warm, await self._ttft(f"new={session.context_tokens}"))
        self.link.gathered.resumes = found

    async def _ttft(self, query: str) -> float | None:
        if self.link.http is None:
            return None
        seconds = (await self.link.http.get(f"/v1/engine/forecast?{query}") or {}).get("ttft_p50_s")
        return None if seconds is None else float(seconds)

    async def _ask_records(self) -> None:
        self.link.gathered.kept = await asyncio.to_thread(self._folder.read)

    async def _read_log(self) -> None:
        text = await asyncio.to_thread(log_tail, self.link.context.paths.engine_log, LINES)
        self.link.gathered.logs = tuple(views.log_line(line) for line in text.splitlines())

    async def _check(self) -> None:
        from ftagent.checks import run_checks

        found = await asyncio.to_thread(lambda: list(run_checks(self.link.context, None)))
        self.link.gathered.checks = tuple(Check(c.id, c.status, c.text, c.fix, c.cause, c.by_hand) for c in found)

    async def _diff(self) -> None:
        known = self.link.gathered
        known.diffs = await diffs_of(self.link.context.paths, known.kept)
        alive = set(held_leases(self.link.context.paths))
        launched = [session for session in known.kept if session.id in alive]
        known.others = {session.id: await asyncio.to_thread(changed_files, session) for session in launched}


async def quietly(ask: Callable[[], Awaitable[None]]) -> None:
    """An answer that does not come leaves what was known; the stream tells when the engine is gone."""
    with contextlib.suppress(Unreachable):
        await ask()
