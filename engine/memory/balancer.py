"""Who gets the next slab: experts, which save misses of every step, or KV, which saves computing a prompt again.

Pure decisions over a view of the engine: it reads no clock, holds no lease and moves nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.memory.balance.bounds import Bounds, state_sizes, with_lead
from engine.memory.balance.value import predict, turn_s
from engine.memory.balance.view import Line, Prediction, Proposal, View
from engine.memory.split import KV, Split

__all__ = ["Balancer", "Line", "Prediction", "Proposal", "Split", "Tuning", "View"]

LOG_ENTRIES = 256
BY_HAND = "set by hand"


@dataclass(frozen=True, slots=True)
class Tuning:
    """`band`: a move that nobody waits for must save this share of the expected time of a turn. `dwell_s`: so long KV keeps
    what it was given, unless somebody else waits. `lead_tokens` are given to a running request beyond what it needs."""

    band: float = 0.005
    dwell_s: float = 0.5
    lead_tokens: int = 256


class Balancer:
    """`log` is what was moved, newest last: at, reason, the two splits, and decode rates predicted and measured."""

    def __init__(self, tuning: Tuning | None = None) -> None:
        self.tuning = tuning or Tuning()
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_ENTRIES)
        self._grown_at = -math.inf  # when KV was last given more

    def propose(self, view: View) -> Proposal | None:
        """A better split than `view.split`, or None. The same view with the proposed split gives None."""
        waits, needed, least_kv = view.need_kv > view.split.kv_slabs, view.need_kv, Bounds.of(view).low
        view = with_lead(view, -(-self.tuning.lead_tokens // max(1, view.tokens_per_slab)))
        half_lead = needed + (view.need_kv - needed) // 2  # it is filled up again when it is half used
        bounds = Bounds.of(view)
        best = self._best(view, [bounds, *(Bounds.of(view, state) for state in state_sizes(view))])
        reason, urgent = self._forced(view, bounds, best, waits)
        if not reason:
            reason = self._gains(view, best, max(least_kv, min(half_lead, bounds.low)))
        if not reason or (best == view.split and view.usable == view.slabs - view.lent):
            return None
        if best.kv_slabs > view.split.kv_slabs:
            self._grown_at = view.now_s
        return Proposal(
            view.split,
            best,
            view.slabs - view.usable,
            reason,
            urgent,
            predict(view, view.split),
            predict(view, best),
        )

    def predict(self, view: View, split: Split) -> Prediction:
        """What `split` would give instead of the one there is."""
        return predict(view, split)

    def note_effect(
        self,
        proposal: Proposal,
        at_s: float,
        after: Split,
        rate_before: float | None,
        rate_after: float | None,
        seconds: float,
    ) -> None:
        """`proposal` has been applied by `at_s`, as far as `after` says, which took `seconds`. The rates are tokens per
        second of one sequence that were measured before and after; None where nothing decoded."""
        self.log.append(
            {
                "at": at_s,
                "reason": proposal.reason,
                "before": proposal.was.to_json(),
                "after": after.to_json(),
                "lent": proposal.lent,
                "predicted": {
                    "before": proposal.before.decode_tokens_per_s,
                    "after": proposal.after.decode_tokens_per_s,
                },
                "measured": {"before": rate_before, "after": rate_after},
                "seconds": seconds,
            }
        )

    def _best(self, view: View, possible: Sequence[Bounds]) -> Split:
        """The cheapest possible split; of equal ones the nearest to what is."""
        splits = [bounds.split(kv) for bounds in possible for kv in sorted(set(bounds.sizes(view)))]
        now = view.split

        def order(split: Split) -> tuple[float, int, int]:
            return turn_s(view, split), abs(split.state_slabs - now.state_slabs), abs(split.kv_slabs - now.kv_slabs)

        return min(splits, key=order)

    def _forced(self, view: View, bounds: Bounds, best: Split, waits: bool) -> tuple[str, bool]:
        """(why the split must change whatever it gains, whether somebody waits); empty when it need not."""
        now = view.split
        if now.slabs > bounds.usable or bounds.usable < view.slabs - view.lent:
            return "another program needs memory", True
        pinned = bounds.fixed is not None or KV in view.pins
        if pinned and best != now:
            return BY_HAND, True
        if waits and now.kv_slabs < bounds.low:
            return "a request needs KV", True
        if now.state_slabs < bounds.state or now.experts_slabs < min(bounds.least_experts, best.experts_slabs):
            return "less than the least is there", True
        if view.take_back and view.lent:
            return "memory came back", False
        return "", False

    def _gains(self, view: View, best: Split, least_kv: int) -> str:
        """Why `best` is worth a move; empty when it is not, or too soon. Below `least_kv` it always is."""
        now = view.split
        if best == now:
            return ""
        more = best.kv_slabs > now.kv_slabs
        if not more and view.now_s < self._grown_at + self.tuning.dwell_s:
            return ""
        cost, better = turn_s(view, now), turn_s(view, best)
        if now.kv_slabs < least_kv:
            return "a running request grows" if any(line.running for line in view.lines) else "nobody used it"
        if cost - better <= self.tuning.band * cost:
            return ""
        if best.state_slabs != now.state_slabs:
            return "checkpoints save more" if best.state_slabs > now.state_slabs else "checkpoints save less"
        return "the next turn needs KV" if more else "experts gain more"
