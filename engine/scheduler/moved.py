"""A move of memory under way, and what it did in the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.memory.split import Split
from engine.scheduler.vacate import Counts


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. `wanted` is where it was going; it is `complete` when it got there."""

    before: Split
    after: Split
    wanted: Split
    dropped_experts: int = 0
    evicted_pages: int = 0
    evicted_states: int = 0
    moved_pages: int = 0
    moved_states: int = 0
    seconds: float = 0.0  # spent between steps
    pieces: int = 0  # between so many steps
    longest_s: float = 0.0  # the longest of them
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Way:
    """A move under way."""

    before: Split
    wanted: Split
    counts: Counts
    seconds: float = 0.0
    pieces: int = 0
    longest_s: float = 0.0

    def spent(self, seconds: float) -> None:
        """One more piece took so long."""
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)
        self.pieces += 1

    def report(self, after: Split, complete: bool) -> Moved:
        """What was done so far."""
        return Moved(
            self.before,
            after,
            self.wanted,
            **asdict(self.counts),
            seconds=self.seconds,
            pieces=self.pieces,
            longest_s=self.longest_s,
            complete=complete,
        )
