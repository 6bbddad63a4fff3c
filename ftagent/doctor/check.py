"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

BAD = ("FAIL", "WARN")


@dataclass(frozen=True, slots=True)
class Check:
    """`status` is OK, WARN, FAIL or SKIP; `text` is what was found, `cause` what follows from it. `fix` is one command; `by_hand`: one
    that only the person can give, because it wants another user's rights, their own shell, or their judgement."""

    id: str
    status: str
    text: str
    fix: str = ""
    cause: str = ""
    by_hand: bool = False

    @property
    def fixable(self) -> bool:
        """Whether ft can run the fix, once it was asked to."""
        return self.status in BAD and bool(self.fix) and not self.by_hand

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "fixable": self.fixable}
