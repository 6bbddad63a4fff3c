"""What the balancer may know, and what it may say. Plain numbers; whoever fills a view owns where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.memory.split import Split


@dataclass(frozen=True, slots=True)
class Line:
    """The KV of one conversation. `tokens` are held or cached now, `growth` more are expected by the end of its next turn,
    and `reuse` is the probability that this comes within the time of one turn. A `running` line is in a step or waits for
    one: what it needs is in `View.need_kv`. Lines are given in the order of their last use."""

    tokens: int
    growth: float = 0.0
    reuse: float = 1.0
    running: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """One moment of an engine, in slabs, tokens and seconds.

    `least` is what each tenant keeps whatever happens: KV and states that running requests hold, one token's experts.
    `need_kv` are slabs for what running requests hold and compute next and for a request that waits for pages, what is
    cached not counted; it may be more than there is. `misses(slots)` is the expected number of experts missing in one step.
    `pins` are slabs set by hand.
    """

    now_s: float
    split: Split
    slabs: int
    slots_per_slab: int  # 0: this engine has no expert slots
    tokens_per_slab: int
    least: Split
    misses: Callable[[int], float]
    miss_s: float  # what one missing expert adds to a step
    step_s: float  # a step that misses nothing
    need_kv: int = 0
    lent: int = 0  # slabs of the arena that other programs have now
    give_back: int = 0  # more slabs that they want
    take_back: int = 0  # of the lent ones, slabs that may be used again
    lines: tuple[Line, ...] = ()
    replay_s: float = 0.0  # computing one token of a prompt again
    rows: float = 1.0  # sequences that decode together
    steps_per_turn: float = 200.0
    pins: Mapping[str, int] = field(default_factory=dict)
    window_tokens: int = 1 << 30  # the model's own limit
    experts: int = 1 << 30  # slots that hold every expert there is
    routed: float = 0.0  # experts that a step asks for; 0: not known
    slab_s: float = 0.0  # emptying one slab for another tenant
    restart_tokens: Callable[[int], float] | None = (
        None  # computed again each turn for lack of a checkpoint, by slabs of states
    )

    @property
    def usable(self) -> int:
        """Slabs to share out once other programs have what they want, as far as `least` allows."""
        wanted = max(0, self.lent + self.give_back - min(self.take_back, self.lent))
        return max(self.slabs - wanted, min(self.slabs, self.least.slabs))

    def slots(self, split: Split) -> int:
        return min(self.experts, split.experts_slabs * self.slots_per_slab)

    def kv_tokens(self, split: Split) -> int:
        return split.kv_slabs * self.tokens_per_slab


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a split is expected to give: one sequence's decode rate, the longest request, and the time to get there."""

    decode_tokens_per_s: float
    window_tokens: int
    seconds_to_apply: float
    misses_per_step: float
    miss_rate: float | None  # of the experts that a step asks for; None: not known

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Make it `split` instead of `was`, with `lent` slabs in all at other programs. `urgent`: somebody waits for it.
    `reason` is one clause for people; `before` and `after` are what the two splits were expected to give."""

    was: Split
    split: Split
    lent: int
    reason: str
    urgent: bool
    before: Prediction
    after: Prediction
