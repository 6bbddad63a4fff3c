"""What the balancer is told: the engine as it stands, what steps have cost, and what conversations will need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from engine.memory.balance.cost import StepCost
from engine.memory.balance.growth import Growth
from engine.memory.balance.view import View
from engine.memory.pools import Pools
from engine.scheduler.moves import Mover
from engine.scheduler.replays import Replays
from engine.scheduler.request import Request

RECENT = 1 / 16  # of the newest step in running means
SETTLED = 8  # steps after which a decode rate means something


class Curve(Protocol):
    """How many experts a step misses with any number of slots; see experts.curves."""

    @property
    def steps(self) -> int: ...

    @property
    def asked(self) -> float: ...

    def misses(self, slots: int) -> float: ...


class Outlook:
    """`miss_s` is what a missing expert should cost, `window_tokens` the model's own limit; `misses` counts those so far."""

    def __init__(
        self,
        pools: Pools,
        window_tokens: int,
        curve: Curve | None = None,
        miss_s: float = 0.0,
        misses: Callable[[], int] = lambda: 0,
    ) -> None:
        self.growth = Growth()
        self.cost = StepCost(miss_s)
        self.curve = curve
        self.window_tokens = window_tokens
        self.replays: Replays | None = None  # of a model with checkpoints
        self._pools, self._misses = pools, misses
        self._missed = misses()
        self._rows = 1.0
        self._prefill_s: float | None = None  # for one token
        self._decode_s, self._decodes = 0.0, 0  # of the steps since the last `mark`

    def serve_with(self, curve: Curve | None, miss_s: float, misses: Callable[[], int]) -> None:
        """Experts are served in another way from now on: what steps cost is to be learnt anew."""
        self.cost, self.curve, self._misses = StepCost(miss_s), curve, misses
        self._missed = misses()

    @property
    def known(self) -> bool:
        """Enough steps were seen to say what a slot is worth."""
        return self.curve is not None and self.curve.steps > 0 and self.cost.known

    @property
    def page_tokens(self) -> int:
        return self._pools.page_tokens

    @property
    def tokens_per_slab(self) -> int:
        return self._pools.pages.cells.per_slab * self._pools.page_tokens

    def kv_tokens(self, slabs: int) -> int:
        """Tokens that so many slabs have room for beside the sentinel page."""
        return max(0, slabs * self.tokens_per_slab - self._pools.page_tokens)

    def kv_slabs(self, tokens: int) -> int:
        """Slabs for so many tokens."""
        pages = -(-tokens // self._pools.page_tokens) + 1
        return -(-pages // self._pools.pages.cells.per_slab)

    def stepped(self, decodes: int, prefilled: int, seconds: float) -> None:
        """A step took `seconds`, in which so many sequences decoded and so many prompt tokens were computed."""
        missed = self._misses() - self._missed
        self._missed += missed
        if prefilled:
            if not decodes:
                each = seconds / prefilled
                self._prefill_s = each if self._prefill_s is None else self._prefill_s + 0.3 * (each - self._prefill_s)
        elif decodes:
            self.cost.note(seconds, missed)
            self._rows += RECENT * (decodes - self._rows)
            self._decode_s += seconds
            self._decodes += 1

    def ended(self, request: Request, now_s: float) -> None:
        """`request` is over and what it computed is cached."""
        if not request.ahead:
            self.growth.ended(request.submit.session, request.computed, request.output_tokens, now_s)

    def mark(self) -> float | None:
        """Tokens per second of one sequence since the last mark; None: too few steps only decoded."""
        rate = self._decodes / self._decode_s if self._decodes >= SETTLED and self._decode_s else None
        self._decode_s, self._decodes = 0.0, 0
        return rate

    @property
    def marked_steps(self) -> int:
        return self._decodes

    def view(
        self,
        now_s: float,
        mover: Mover,
        running: Iterable[Request],
        slabs: int,
        lent: int,
        give_back: int,
        take_back: int,
        pins: Mapping[str, int],
        more_pages: int = 0,
    ) -> View:
        """The engine now; `more_pages` are wanted beyond what running requests hold and are known to need."""
        requests = list(running)
        curve, slots, slot_pool = self.curve, 0, self._pools.slots
        if mover.experts_move and slot_pool is not None:
            slots = slot_pool.per_slab
        copy_s = 1e-9 * self._pools.arena.slab_bytes / 4  # a slab copied at 4 GB/s, the least any tier has
        return View(
            now_s=now_s,
            split=mover.split,
            slabs=slabs,
            slots_per_slab=slots,
            tokens_per_slab=self.tokens_per_slab,
            least=mover.least(),
            misses=(lambda slots: 0.0) if curve is None else curve.misses,
            miss_s=self.cost.miss_s,
            step_s=max(0.0, self.cost.step_s),
            need_kv=self._need(requests, more_pages),
            lent=lent,
            give_back=give_back,
            take_back=take_back,
            lines=self.growth.lines(now_s, self._lines(requests)),
            replay_s=self._prefill_s or 0.0,
            rows=self._rows,
            steps_per_turn=self.growth.steps_per_turn,
            pins=pins,
            window_tokens=self.window_tokens,
            experts=mover.most_slots(),
            routed=0.0 if curve is None else curve.asked,
            slab_s=copy_s,
            restart_tokens=None if self.replays is None or not self.replays.curve.known else self.replays.tokens,
        )

    def _lines(self, running: Iterable[Request]) -> dict[str, int]:
        return {r.submit.session or r.rid: len(r.tokens) for r in running if not r.ahead}

    def _need(self, running: list[Request], more_pages: int) -> int:
        """Slabs for the pages that requests hold and will have filled once their prompts are computed, and `more_pages`."""
        held = len(set().union(*(r.pages for r in running))) if running else 0
        coming = sum(max(0, len(r.tokens) // self._pools.page_tokens + 2 - len(r.pages)) for r in running)
        pages = held + coming + more_pages + 1
        return -(-pages // self._pools.pages.cells.per_slab)
