"""What other programs on the machine leave us, looked at now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Spare(Protocol):
    """See memory.foreign.Spare."""

    @property
    def give_back_bytes(self) -> int: ...

    @property
    def may_take_bytes(self) -> int: ...

    def to_json(self) -> dict[str, Any]: ...


class Foreign(Protocol):
    """See memory.foreign.Foreign."""

    def look(self, promised_bytes: int = 0) -> Spare: ...


class Others:
    """`foreign` is None where nobody watches other programs. `spare` is what was seen last."""

    def __init__(self, foreign: Foreign | None, clock: Callable[[], float]) -> None:
        self.spare: Spare | None = None
        self.foreign, self._clock = foreign, clock
        self._looked_at = -1e9

    @property
    def watched(self) -> bool:
        return self.foreign is not None

    def look(self, every_s: float, untouched_bytes: int, lent: int) -> bool:
        """True when other programs want memory, or do no longer what they want of the `lent` slabs. `untouched_bytes` are granted
        to us and still to be taken from the system. Looks at most every `every_s`."""
        now = self._clock()
        if self.foreign is None or now - self._looked_at < every_s:
            return False
        self._looked_at = now
        self.spare = self.foreign.look(untouched_bytes)
        return self.spare.give_back_bytes > 0 or (lent > 0 and self.spare.may_take_bytes > 0)

    def slabs(self, slab_bytes: int) -> tuple[int, int]:
        """(slabs that they want, slabs that they leave us)."""
        if self.spare is None:
            return 0, 0
        return -(-self.spare.give_back_bytes // slab_bytes), self.spare.may_take_bytes // slab_bytes
