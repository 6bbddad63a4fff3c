"""What the last move gave, measured over the decode steps after it."""

from __future__ import annotations

import time

from engine.memory.balance.view import Proposal
from engine.memory.balancer import Balancer
from engine.scheduler.moved import Moved
from engine.scheduler.outlook import Outlook

MEASURED_STEPS = 32  # decode steps after a move that tell what it gave


class Effect:
    """One move at a time: a new one ends the measuring of that before."""

    def __init__(self, balancer: Balancer, outlook: Outlook) -> None:
        self._balancer, self._outlook = balancer, outlook
        self._measuring: tuple[Proposal, Moved, float | None] | None = None
        self._before: float | None = None

    def begins(self) -> None:
        """A move begins: the decode rate until now is what it is compared with."""
        self._before = self._take()

    def of(self, proposal: Proposal, moved: Moved) -> None:
        """The move is over: what it gives is measured from now on."""
        self._measuring = proposal, moved, self._before
        self._outlook.mark()

    def stepped(self) -> None:
        """A step is over."""
        if self._measuring is not None and self._outlook.marked_steps >= MEASURED_STEPS:
            self._take()

    def _take(self) -> float | None:
        """What the last move gave is known as well as it will be. Returns the decode rate since then."""
        rate = self._outlook.mark()
        if self._measuring is not None:
            (proposal, moved, before), self._measuring = self._measuring, None
            self._balancer.note_effect(proposal, time.time(), moved.after, before, rate, moved.seconds)
        return rate
