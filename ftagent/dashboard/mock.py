"""Made-up frames, the same ones at each call: for pictures, tests, and a look at the dashboard without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from ftagent.dashboard import scenarios
from ftagent.dashboard.model import Act, Explanation, Frame, Outcome, Part, WhatIf
from ftagent.dashboard.scenarios import parts

SCENARIOS: dict[str, Callable[[float], Frame]] = {
    "no-engine": scenarios.no_engine,
    "loading": scenarios.loading,
    "idle": scenarios.idle,
    "watchdog": scenarios.near_watchdog,
    "four": scenarios.four,
    "crash": scenarios.crash,
    "fifty": scenarios.fifty,
    "wide": scenarios.wide,
    "upstream": scenarios.upstream,
}


def frame(scenario: str, seconds: float = 0.0) -> Frame:
    """The scenario so long after its beginning. Raises KeyError."""
    return replace(SCENARIOS[scenario](seconds), source=f"mock {scenario}")


class MockSource:
    """See model.Source. Time runs with the frames, not with the clock: frame n is n / fps seconds in."""

    def __init__(self, scenario: str, fps: float = 2.0, readonly: bool = False) -> None:
        self._scenario, self._fps, self._readonly = scenario, fps, readonly
        self._closed = asyncio.Event()
        self.shown: tuple[Part, ...] = ("overview",)
        self.acts: list[tuple[str, dict[str, Any]]] = []  # what was asked for, for tests

    async def frames(self) -> AsyncIterator[Frame]:
        """See Source."""
        seconds = 0.0
        while not self._closed.is_set():
            made = frame(self._scenario, seconds)
            yield replace(made, readonly=True, offers=()) if self._readonly else made
            seconds += 1 / self._fps
            try:
                async with asyncio.timeout(1 / self._fps):
                    await self._closed.wait()
            except TimeoutError:
                pass

    def show(self, *parts: Part) -> None:
        """See Source."""
        self.shown = parts

    def pace(self, fps: float) -> None:
        """See Source."""
        self._fps = fps

    def again(self, part: Part) -> None:
        """See Source. Nothing has changed."""

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """See Source. Nothing happens."""
        if self._readonly:
            return Outcome(False, "This dashboard only reads (--readonly).")
        self.acts.append((what, arguments))
        return Outcome(True, f"{what}: done, in this made-up scenario")

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """See Source."""
        return parts.what_if(label, asked)

    async def explain(self, request: str) -> Explanation:
        """See Source."""
        return parts.explanation(request)

    async def close(self) -> None:
        """See Source."""
        self._closed.set()
