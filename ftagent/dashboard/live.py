"""Frames of the engine that runs: one stream of events, and questions no more often than what is shown needs.

Survives an engine that is not there, goes away, or comes back as another one: what was last known stays, with its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from ftagent.atomic import read_json
from ftagent.context import Context
from ftagent.dashboard.http import Http, Unreachable
from ftagent.dashboard.link import Link
from ftagent.dashboard.model import Frame, Part
from ftagent.dashboard.questions import Questions, quietly
from ftagent.local_engine.client import EngineUrl, parse_engine_url
from ftagent.local_engine.options import arguments_of

HISTORY = 256  # records asked for when an engine is found
LOOK_S = 1.0  # between two looks for one
HEARD_S = 0.2  # events of the past come at once
LEAST_S = 0.1  # between two frames


class LiveSource(Questions):
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
        super().__init__(Link(context, readonly, clock), fps)
        self._fps, self._url, self._token = fps, url, token
        self._nonce: str | None = None
        self._closed = asyncio.Event()
        self._wake = asyncio.Event()

    async def frames(self) -> AsyncIterator[Frame]:
        """See Source."""
        follower = asyncio.create_task(self._follow())
        try:
            await self._settle()
            while not self._closed.is_set():
                self.start_jobs()
                made_at = time.monotonic()
                yield self.frame()
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1 / self._fps):
                        await self._wake.wait()
                await asyncio.sleep(max(0.0, made_at + LEAST_S - time.monotonic()))  # events come in bursts
        finally:
            tasks = [follower, *(job.task for job in self.jobs if job.task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def once(self, patience_s: float = 5.0) -> Frame:
        """One frame in which everything that is shown was asked for once, as far as it answers in time."""
        await self._find()
        if self.link.http is not None:
            with contextlib.suppress(Unreachable):
                self.link.gathered.ready((await self.link.http.call("GET", "/ready"))[1] or {}, self.link.clock())
                self.link.gathered.reachable = True
            await self._listen(HEARD_S)
        jobs = [job for job in self.jobs if self.wanted(job) is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                for later in (False, True):
                    asked = [quietly(job.ask) for job in jobs if job.later == later]
                    await asyncio.gather(*asked, return_exceptions=True)
        return self.frame()

    def show(self, *parts: Part) -> None:
        """See Source."""
        self.link.shown = frozenset(parts) | {"overview"}
        self._wake.set()

    def pace(self, fps: float) -> None:
        """See Source. What runs is asked for at the same rate."""
        self.pace_of_running(fps)
        self._fps = fps

    async def close(self) -> None:
        """See Source."""
        self._closed.set()
        self._wake.set()

    async def _listen(self, seconds: float) -> None:
        """Take in what the engine still has of its events."""
        assert self.link.http is not None
        with contextlib.suppress(Unreachable, TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in self.link.http.events("/v1/engine/events", self.link.gathered.last_event):
                    self.link.gathered.event(event, self.link.clock())

    async def _settle(self) -> None:
        """The first frame is drawn with what is at hand at once."""
        await self._ask_records()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._wake.wait()

    async def _follow(self) -> None:
        gathered = self.link.gathered
        while not self._closed.is_set():
            await self._find()
            if self.link.http is not None:
                with contextlib.suppress(Unreachable):
                    async for event in self.link.http.events("/v1/engine/events", gathered.last_event):
                        gathered.event(event, self.link.clock())
                        if event.kind != "prefill":
                            self._wake.set()
            gathered.lost()
            self.link.http = None
            self._wake.set()
            await asyncio.sleep(LOOK_S)

    async def _find(self) -> None:
        """Our own engine, believed only when it answers with the nonce in its runtime file; or the one that was named."""
        record: Mapping[str, Any] = {}
        paths, gathered = self.link.context.paths, self.link.gathered
        if self._url is None:
            record = read_json(paths.engine_file) or {}
            gathered.before(record.get("model"), _changed(paths.engine_log))
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
            gathered.new_engine(url.text, pid, record.get("model"), arguments_of(pid) if pid else None)
            with contextlib.suppress(Unreachable):
                told = await http.get(f"/v1/requests?limit={HISTORY}") or {}
                gathered.turns(told.get("requests") or [])
        self.link.http = http


def _changed(path: Path) -> float | None:
    """When it was last written to."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
