"""What the parts of a live source share: the engine that answers now, what is known of it, and what is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ftagent.context import Context, find_project
from ftagent.dashboard.gather import Gathered
from ftagent.dashboard.http import Http
from ftagent.dashboard.model import Part
from ftagent.errors import FtError
from ftagent.settings.config import Settings

SLOW_S = 40.0  # the engine answers questions about memory between two steps


class Link:
    """`http` is None while no engine answers."""

    def __init__(self, context: Context, readonly: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.context, self.clock = context, clock
        self.gathered = Gathered(context.paths, find_project(context.cwd), _settings(context))
        self.gathered.readonly = readonly
        self.http: Http | None = None
        self.shown: frozenset[Part] = frozenset(("overview",))

    async def get(self, route: str, timeout_s: float = 5.0) -> Mapping[str, Any]:
        """The newest answer, which is kept; {} where there is none. Raises Unreachable."""
        answer = None if self.http is None else await self.http.get(route, timeout_s)
        if answer is not None:
            self.gathered.answers.put(route, answer, self.clock())
        return answer or {}


def _settings(context: Context) -> Settings | None:
    """Prices and origins; a file that cannot be read is the doctor's business."""
    try:
        return context.settings()
    except FtError:
        return None
