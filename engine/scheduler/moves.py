"""Memory changes hands between two steps: KV pages, recurrent states and expert slots trade slabs while requests run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from engine.memory.split import Split


class ExpertSlots(Protocol):
    """The executor as a move sees it. Slot ids are cells of the slot pool; nothing is called during a step."""

    least: int  # so many slots must stay: one token's experts

    def worth(self, slots: Sequence[int]) -> float:
        """What the experts in these slots are worth to the policy together; 0 when they are empty."""

    def offer(self, slots: Sequence[int]) -> None:
        """These slots may be filled from now on."""

    def withdraw(self, slots: Sequence[int]) -> int:
        """Forget what these slots hold and use them no more. Returns how many experts were in them."""

    def verify(self) -> None:
        """Compare one expert in a slot with its source. Raises ExpertsDamaged."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. `wanted` is where it was going; it is `complete` when `after` equals that."""

    before: Split
    after: Split
    wanted: Split
    dropped_experts: int = 0
    evicted_pages: int = 0
    evicted_states: int = 0
    moved_pages: int = 0
    moved_states: int = 0
    seconds: float = 0.0
    pieces: int = 0  # steps between which something was done
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
