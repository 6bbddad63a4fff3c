"""Where frames come from, and what can be asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from ftagent.dashboard.model.frame import Act, Frame, Part
from ftagent.dashboard.model.memory import WhatIf
from ftagent.dashboard.model.turns import Explanation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action: one sentence for a person."""

    done: bool
    text: str


class Source(Protocol):
    """Where frames come from. One reader at a time."""

    def frames(self) -> AsyncIterator[Frame]:
        """A frame now and then one each 1/fps s, or as soon as something that is shown changes, until `close`."""

    def show(self, *parts: Part) -> None:
        """What is on the screen; only that is asked for at the frame rate. All sources begin with the overview."""

    def pace(self, fps: float) -> None:
        """At most so many frames a second from now on."""

    def again(self, part: Part) -> None:
        """Something was done about what is shown there: ask anew, soon."""

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """cancel(request) · apply(moe_slots|kv_tokens|preset|auto) · pin(id, position, line) ·
        unpin, drop: as pin · gc() · stop(session) · beat(request) ·
        pause() · go_on() · keep(). Never raises: what failed is said."""

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """What `apply` with the same arguments would give."""

    async def explain(self, request: str) -> Explanation:
        """Why this request's prefix broke, with the texts around the break where they are known."""

    async def close(self) -> None:
        """End `frames` and let go of everything."""
