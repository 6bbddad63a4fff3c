"""What every part of a frame uses: where a value comes from, how full something is, how near a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "amber", "red"]  # of a limit: amber from 50 %, red from 80 %


@dataclass(frozen=True, slots=True)
class Told:
    """Where the values beside it come from, such as `/v1/stats` or `session record`. `at` None: never read."""

    source: str = ""
    at: float | None = None

    def age_s(self, now: float) -> float | None:
        return None if self.at is None else max(0.0, now - self.at)


UNTOLD = Told()
