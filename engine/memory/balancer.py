"""Who gets the next slab: experts, which save misses of every step, or KV, which saves computing a prompt again.

Pure decisions over a view of the engine: it reads no clock, holds no lease and moves nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.memory.balance.value import predict
from engine.memory.balance.view import Line, Prediction, Proposal, View
from engine.memory.split import Split

__all__ = ["Balancer", "Line", "Prediction", "Proposal", "Split", "Tuning", "View"]

LOG_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class Tuning:
    """`band`: a move that somebody does not wait for must save this share of the expected time of a turn. `dwell_s`: and
    come so long after the last one."""

    band: float = 0.01
    dwell_s: float = 2.0


class Balancer:
    """`log` is what was proposed, newest last: at, reason, before, after, predicted and measured tokens per second."""

    def __init__(self, tuning: Tuning | None = None) -> None:
        self.tuning = tuning or Tuning()
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_ENTRIES)

    def propose(self, view: View) -> Proposal | None:
        """A better split than `view.split`, or None. The same view with the proposed split gives None."""
        return None

    def predict(self, view: View, split: Split) -> Prediction:
        """What `split` would give instead of the one there is."""
        return predict(view, split)

    def note_effect(
        self, proposal: Proposal, at_s: float, after: Split, rates: Sequence[float | None], seconds: float
    ) -> None:
        """`proposal` has been applied by `at_s`, as far as `after` says, within `seconds`; `rates` are the decode rates
        measured before it and after it."""
        before_rate, after_rate = rates
        self.log.append(
            {
                "at": at_s,
                "reason": proposal.reason,
                "after": after.to_json(),
                "predicted": {"before": proposal.before.to_json(), "after": proposal.after.to_json()},
                "measured": {"before": before_rate, "after": after_rate},
                "seconds": seconds,
            }
        )
