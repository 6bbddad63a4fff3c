"""Which splits are possible now: what runs keeps its memory, other programs get what they want, pins hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.memory.balance.value import wanted
from engine.memory.balance.view import View
from engine.memory.split import EXPERTS, KV, STATE, Split

CANDIDATES = 96  # sizes of KV that are compared, beside those where a conversation just fits


@dataclass(frozen=True, slots=True)
class Bounds:
    """KV may have `low` to `high` slabs; states have `state`. Experts get what is left, `fixed` of it when pinned, and at
    most `most`."""

    low: int
    high: int
    state: int
    usable: int
    least_experts: int
    most: int
    fixed: int | None

    def split(self, kv_slabs: int) -> Split:
        """The split with so many slabs for KV. What neither can use stays free."""
        left = self.usable - self.state - kv_slabs
        experts = min(left, self.most if self.fixed is None else self.fixed)
        return Split(kv_slabs, self.state, max(min(left, self.least_experts), experts))

    @staticmethod
    def of(view: View, state_slabs: int | None = None) -> Bounds:
        """`view.need_kv` is granted as far as there is anything to grant. `state_slabs` instead of what states have now."""
        usable, least, pins = view.usable, view.least, view.pins
        least_experts = least.experts_slabs  # what they hold, where they have no slots that move
        room = usable - least.kv_slabs - least_experts
        state = view.split.state_slabs if state_slabs is None else state_slabs
        state = max(least.state_slabs, min(pins.get(STATE, state), room))
        most_kv = max(least.kv_slabs, usable - state - least_experts)
        most_experts = -(-view.experts // view.slots_per_slab) if view.slots_per_slab else least_experts
        fixed = pins.get(EXPERTS)
        if KV in pins:
            low = high = min(most_kv, max(least.kv_slabs, pins[KV]))
        else:
            low, high = min(most_kv, max(least.kv_slabs, view.need_kv)), most_kv
            if fixed is not None:  # KV has all that the pinned experts leave
                low = high = max(low, min(most_kv, usable - state - max(least_experts, fixed)))
            else:  # more experts than there are need no room
                low = max(low, usable - state - max(most_experts, least_experts))
        return Bounds(low, high, state, usable, least_experts, most_experts, fixed)

    def sizes(self, view: View) -> Iterator[int]:
        """Sizes of KV worth comparing, within the bounds."""
        steps = max(1, -(-(self.high - self.low) // CANDIDATES))
        yield from range(self.low, self.high, steps)
        yield self.high
        if self.low <= view.split.kv_slabs <= self.high:
            yield view.split.kv_slabs
        tokens = 0.0
        for line, wish in wanted(view.lines):
            for part in (line.tokens, wish - line.tokens):
                tokens += part
                slabs = view.need_kv - int(-tokens // view.tokens_per_slab)
                if self.low <= slabs <= self.high:
                    yield slabs


def state_sizes(view: View) -> list[int]:
    """Numbers of slabs for states worth comparing with what they have: the least, and 1, 2, 4, … more."""
    least = view.least.state_slabs
    if view.restart_tokens is None or STATE in view.pins or not least:
        return []
    return [least, *(least + (1 << i) for i in range((view.usable - least).bit_length()))]


def with_lead(view: View, lead_slabs: int) -> View:
    """`view` as if a running request needed `lead_slabs` more, so that it need not ask again soon."""
    runs = any(line.running for line in view.lines)
    return replace(view, need_kv=view.need_kv + lead_slabs) if runs else view
