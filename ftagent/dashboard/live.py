"""Frames of the engine that runs: one stream of events, and questions no more often than what is shown needs.

Survives an engine that is not there, goes away, or comes back as another one: what was last known stays, with its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftagent.atomic import read_json
from ftagent.context import Context, find_project
from ftagent.dashboard import views
from ftagent.dashboard.diffs import diff_stats
from ftagent.dashboard.gather import AT_WORK, Gathered
from ftagent.dashboard.http import Http, Unreachable
from ftagent.dashboard.model import Act, Check, Explanation, Frame, Outcome, Part, WhatIf
from ftagent.dashboard.people import Folder
from ftagent.errors import FtError
from ftagent.local_engine.client import EngineUrl, parse_engine_url
from ftagent.local_engine.log import log_tail
from ftagent.local_engine.options import arguments_of
from ftagent.session.records import SESSION_ID, lease_pid
from ftagent.settings.config import Settings

HISTORY = 256  # records asked for when an engine is found
LOOK_S = 1.0  # between two looks for one
FOUND_S = 2.0  # until the first answers are there
SLOW_S = 40.0  # the engine answers questions about memory between two steps
CURVE = (0, 256, 1_024, 4_096, 16_384, 65_536)  # new tokens
USUAL = 4_096
RESUMES, NEXT_TOKENS = 10, 256  # sessions, and what they may send next
WHAT_IF_TOKENS = 32 << 10
HEARD_S = 0.2  # events of the past come at once
LINES = 500
_MEMORY_ACTS = ("moe_slots", "kv_tokens", "preset", "auto")


@dataclass(slots=True)
class Job:
    """Something asked again and again: each `every_s` while one of `parts` is shown, else each `else_s` (None: never)."""

    ask: Callable[[], Awaitable[None]]
    parts: tuple[Part, ...]
    every_s: float
    else_s: float | None
    local: bool = False  # needs no engine
    later: bool = False  # asks about what others have found
    task: asyncio.Task[None] | None = None
    done_at: float = float("-inf")


class LiveSource:
    """See model.Source. `url` and `token`: an engine that runs elsewhere; else the local one."""

    def __init__(
        self,
        context: Context,
        fps: float = 2.0,
        readonly: bool = False,
        url: EngineUrl | None = None,
        token: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._context, self._fps, self._url, self._token, self._clock = context, fps, url, token, clock
        self._gathered = Gathered(context.paths, find_project(context.cwd), _settings(context))
        self._gathered.readonly = readonly
        self._folder = Folder(context.paths)
        self._shown: frozenset[Part] = frozenset(("overview",))
        self._http: Http | None = None
        self._nonce: str | None = None
        self._closed = asyncio.Event()
        self._wake = asyncio.Event()
        self._jobs = [
            Job(self._ask_records, ("overview",), 1.0, 5.0, local=True),
            Job(self._ask_running, ("overview", "turns"), 1 / fps, 2.0),
            Job(self._ask_stats, ("overview", "engine", "anchors", "experts"), 1.0, 10.0),
            Job(self._ask_memory, ("overview", "memory"), 2.0, 15.0),
            Job(self._ask_sessions, ("overview",), 2.0, 5.0),
            Job(self._ask_life, ("overview", "engine"), 2.0, 5.0),
            Job(self._ask_what_ifs, ("overview", "memory"), 10.0, None, later=True),
            Job(self._ask_forecast, ("turns", "overview"), 10.0, None),
            Job(self._ask_resumes, ("overview",), 30.0, None, later=True),
            Job(self._ask_experts, ("experts",), 2.0, None),
            Job(self._read_log, ("logs",), 1.0, None, local=True),
            Job(self._check, ("doctor",), 60.0, None, local=True),
            Job(self._diff, ("overview",), 15.0, None, local=True, later=True),
        ]

    async def frames(self) -> AsyncIterator[Frame]:
        """See Source."""
        follower = asyncio.create_task(self._follow())
        try:
            await self._settle()
            while not self._closed.is_set():
                self._start_jobs()
                yield self.frame()
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1 / self._fps):
                        await self._wake.wait()
        finally:
            tasks = [follower, *(job.task for job in self._jobs if job.task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def frame(self) -> Frame:
        """As everything is known now."""
        return self._gathered.frame(self._clock(), self._offers())

    async def once(self, patience_s: float = 5.0) -> Frame:
        """One frame in which everything that is shown was asked for once, as far as it answers in time."""
        await self._find()
        if self._http is not None:
            with contextlib.suppress(Unreachable):
                self._gathered.ready((await self._http.call("GET", "/ready"))[1] or {}, self._clock())
                self._gathered.reachable = True
            await self._listen(HEARD_S)
        jobs = [job for job in self._jobs if self._wanted(job) is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                for later in (False, True):
                    asked = [_quietly(job.ask) for job in jobs if job.later == later]
                    await asyncio.gather(*asked, return_exceptions=True)
        return self.frame()

    def show(self, *parts: Part) -> None:
        """See Source."""
        self._shown = frozenset(parts) | {"overview"}
        self._wake.set()

    def pace(self, fps: float) -> None:
        """See Source. What runs is asked for at the same rate."""
        for job in self._jobs:
            if job.ask == self._ask_running:
                job.every_s = 1 / fps
        self._fps = fps

    async def close(self) -> None:
        """See Source."""
        self._closed.set()
        self._wake.set()

    # Acting

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """See Source."""
        if self._gathered.readonly:
            return Outcome(False, "This dashboard only reads (--readonly).")
        try:
            return await self._act(what, arguments)
        except Unreachable as error:
            return Outcome(False, f"The engine does not answer: {error}.")

    async def _act(self, what: Act, arguments: Mapping[str, Any]) -> Outcome:
        if what == "stop":
            return self._stop(str(arguments["session"]))
        if what == "pin":
            return Outcome(False, "This engine pins no checkpoint by hand.")
        if what == "apply":
            asked = {name: arguments[name] for name in _MEMORY_ACTS if arguments.get(name) is not None}
            return await self._post("/v1/engine/memory/apply", asked, "Memory is shared out anew.")
        if what in ("pause", "go_on"):
            words = "New requests wait, with heartbeats." if what == "pause" else "New requests are admitted again."
            done = await self._post("/v1/engine/pause", {"on": what == "pause"}, words)
            self._gathered.changed_life = True
            return done
        if what == "keep":
            return await self._post("/v1/engine/idle", {"after_s": None}, "The engine stays until it is stopped.")
        path = f"/v1/requests/{arguments['request']}/{what}"
        words = "Cancelled; most agents send the request again." if what == "cancel" else "A heartbeat is sent."
        return await self._post(path, {}, words)

    def _stop(self, session: str) -> Outcome:
        pid = lease_pid(self._context.paths, session) if SESSION_ID.fullmatch(session) else None
        if pid is None:
            return Outcome(False, "No process of this session is known.")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return Outcome(True, "The agent was asked to end.")

    async def _post(self, path: str, body: Mapping[str, Any], words: str) -> Outcome:
        if self._http is None:
            return Outcome(False, "No engine is running.")
        status, answer = await self._http.call("POST", path, dict(body), SLOW_S)
        if status >= 400:
            return Outcome(False, _refusal(status, answer))
        waits = answer.get("waits_for") if isinstance(answer, dict) else None
        return Outcome(True, f"It waits for {waits}." if waits else words)

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """See Source."""
        if self._http is None:
            return WhatIf(label, asked, False, "No engine is running.")
        try:
            status, answer = await self._http.call("POST", "/v1/engine/memory/plan", asked, SLOW_S)
        except Unreachable as error:
            return WhatIf(label, asked, None, f"The engine does not answer: {error}.")
        if status >= 400 or not isinstance(answer, dict):
            return WhatIf(label, asked, False, _refusal(status, answer))
        return views.what_if_of(label, asked, answer)

    async def explain(self, request: str) -> Explanation:
        """See Source."""
        turn = self._gathered.turn(request)
        if turn is None:
            return Explanation(request, "This request is not remembered.")
        texts: Mapping[str, Any] = {}
        if turn.session and self._http is not None:
            with contextlib.suppress(Unreachable):
                answer = await self._http.get(f"/v1/sessions/{turn.session}/turns?texts=1") or {}
                found = [t for t in answer.get("turns") or () if t.get("id") == request]
                texts = (found[0].get("texts") if found else None) or {}
        return Explanation(request, turn.why, turn.broke_at, texts.get("old"), texts.get("new"))

    def _offers(self) -> tuple[Act, ...]:
        cannot = self._gathered.cannot
        every: tuple[Act, ...] = ("cancel", "apply", "stop", "beat", "pause", "go_on", "keep")
        missing = {"apply": "memory", "pause": "pause", "go_on": "pause"}
        return tuple(act for act in every if missing.get(act) not in cannot)

    # The engine's stream

    async def _listen(self, seconds: float) -> None:
        """Take in what the engine still has of its events."""
        assert self._http is not None
        with contextlib.suppress(Unreachable, TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in self._http.events("/v1/engine/events", self._gathered.last_event):
                    self._gathered.event(event, self._clock())

    async def _settle(self) -> None:
        """The first frame is drawn with what is at hand at once."""
        await self._ask_records()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._wake.wait()

    async def _follow(self) -> None:
        while not self._closed.is_set():
            await self._find()
            if self._http is not None:
                with contextlib.suppress(Unreachable):
                    async for event in self._http.events("/v1/engine/events", self._gathered.last_event):
                        self._gathered.event(event, self._clock())
                        if event.kind != "prefill":
                            self._wake.set()
            self._gathered.lost()
            self._http = None
            self._wake.set()
            await asyncio.sleep(LOOK_S)

    async def _find(self) -> None:
        """Our own engine, believed only when it answers with the nonce in its runtime file; or the one that was named."""
        record: Mapping[str, Any] = {}
        if self._url is None:
            record = read_json(self._context.paths.engine_file) or {}
            self._gathered.before(record.get("model"), _changed(self._context.paths.engine_log))
            if not isinstance(record.get("port"), int) or not record.get("nonce"):
                return
        url = self._url or parse_engine_url(f"http://127.0.0.1:{record['port']}")
        http = Http(url, self._token or record.get("admin_token"))
        try:
            health = await http.get("/health") or {}
        except Unreachable:
            return
        nonce = health.get("nonce")
        if self._url is None and nonce != record["nonce"]:
            return
        if nonce != self._nonce:
            self._nonce = nonce
            pid = health.get("pid") if url.loopback else None
            self._gathered.new_engine(url.text, pid, record.get("model"), arguments_of(pid) if pid else None)
            with contextlib.suppress(Unreachable):
                told = await http.get(f"/v1/requests?limit={HISTORY}") or {}
                self._gathered.turns(told.get("requests") or [])
        self._http = http

    # Questions

    def _start_jobs(self) -> None:
        now = time.monotonic()
        for job in self._jobs:
            every_s = self._wanted(job)
            idle = job.task is None or job.task.done()
            if job.later and job.task is None and every_s is not None and job.done_at == float("-inf"):
                job.done_at = now + FOUND_S - every_s
            if every_s is not None and idle and now - job.done_at >= every_s:
                job.done_at = now
                job.task = asyncio.create_task(_quietly(job.ask))

    def _wanted(self, job: Job) -> float | None:
        """How often, of what is shown and is of use now."""
        if not job.local and self._http is None:
            return None
        return job.every_s if self._shown & set(job.parts) else job.else_s

    async def _get(self, route: str, path: str = "", timeout_s: float = 5.0) -> Mapping[str, Any]:
        assert self._http is not None
        answer = await self._http.get(path or route, timeout_s)
        if answer is not None:
            self._gathered.answers.put(route, answer, self._clock())
        return answer or {}

    async def _ask_running(self) -> None:
        if self._http is not None and (self._gathered.busy or not self._gathered.reachable):
            told = await self._http.get("/v1/requests?running=1") or {}
            self._gathered.running(told.get("requests") or [], self._clock())

    async def _ask_stats(self) -> None:
        if self._http is not None:
            answer = await self._http.get("/v1/stats")
            if answer is not None:
                self._gathered.stats(answer, self._clock())

    async def _ask_memory(self) -> None:
        if self._http is not None:
            await self._get("/v1/engine/memory", timeout_s=SLOW_S)

    async def _ask_sessions(self) -> None:
        if self._http is not None and self._gathered.changed_sessions:
            await self._get("/v1/sessions")
            self._gathered.changed_sessions = self._gathered.busy

    async def _ask_life(self) -> None:
        if self._http is not None and self._gathered.changed_life:
            await self._get("/v1/engine/life")
            self._gathered.changed_life = self._gathered.busy

    async def _ask_experts(self) -> None:
        if self._http is not None:
            await self._get("/v1/engine/experts", timeout_s=SLOW_S)

    async def _ask_what_ifs(self) -> None:
        """32k tokens of KV more and less."""
        kv = self._gathered.answers.get("/v1/engine/memory").get("kv") or {}
        tokens, most = kv.get("tokens"), kv.get("most_tokens")
        if not tokens or not most:
            return
        step = min(WHAT_IF_TOKENS, max(1_024, tokens // 2 // 1_024 * 1_024))
        asked = [(f"KV +{step >> 10}k", tokens + step), (f"KV -{step >> 10}k", tokens - step)]
        found = [await self.what_if(label, kv_tokens=wanted) for label, wanted in asked if 256 < wanted <= most]
        self._gathered.what_ifs = tuple(found)

    async def _ask_forecast(self) -> None:
        if self._http is None:
            return
        window = self._gathered.answers.get("/v1/stats").get("window") or CURVE[-1]
        points = [n for n in CURVE if n < window] if "turns" in self._shown else [min(USUAL, window - 1)]
        answers = [await self._http.get(f"/v1/engine/forecast?new={n}") or {} for n in points]
        self._gathered.forecasts = tuple(answers)
        self._gathered.forecasts_at = self._clock()

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
        self._gathered.resumes = found

    async def _ttft(self, query: str) -> float | None:
        if self._http is None:
            return None
        seconds = (await self._http.get(f"/v1/engine/forecast?{query}") or {}).get("ttft_p50_s")
        return None if seconds is None else float(seconds)

    async def _ask_records(self) -> None:
        self._gathered.kept = await asyncio.to_thread(self._folder.read)

    async def _read_log(self) -> None:
        text = await asyncio.to_thread(log_tail, self._context.paths.engine_log, LINES)
        self._gathered.logs = tuple(views.log_line(line) for line in text.splitlines())

    async def _check(self) -> None:
        from ftagent.checks import run_checks

        found = await asyncio.to_thread(lambda: list(run_checks(self._context, None)))
        self._gathered.checks = tuple(Check(c.id, c.status, c.text, c.fix) for c in found)

    async def _diff(self) -> None:
        self._gathered.diffs = await diff_stats(self._context.paths, self._gathered.kept)


async def _quietly(ask: Callable[[], Awaitable[None]]) -> None:
    """An answer that does not come leaves what was known; the stream tells when the engine is gone."""
    with contextlib.suppress(Unreachable):
        await ask()


def _changed(path: Path) -> float | None:
    """When it was last written to."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _refusal(status: int, answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message or f"The engine answered {status}.")


def _settings(context: Context) -> Settings | None:
    """Prices and origins; a file that cannot be read is the doctor's business."""
    try:
        return context.settings()
    except FtError:
        return None
