"""Who has how much memory, decided and changed while requests run: the balancer is asked, a move is made piece by piece between
steps, and its effect is measured and told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.memory.balance.view import Proposal, View
from engine.memory.balancer import BY_HAND, Balancer
from engine.memory.split import KV, Split
from engine.scheduler.effect import Effect
from engine.scheduler.moved import Moved
from engine.scheduler.moves import Mover
from engine.scheduler.others import Foreign, Others
from engine.scheduler.outlook import Outlook
from engine.scheduler.request import Request
from engine.scheduler.sizes import Sizes

log = logging.getLogger(__name__)

EVERY_STEPS = 64
LOOK_S = 0.1  # how often the memory of other programs is looked at while something runs,
IDLE_LOOK_S = 0.25  # and while nothing does
RETRY_S = 0.25  # what a move waits for is looked at again so soon
PIECES_S = 0.02  # of a move at once, while nothing decodes
DEFRAGMENT_S = 0.01

Event = Callable[[str, dict[str, object]], None]


class Balancing:
    """Called from the loop, between steps. `auto`: the balancer may move what nobody set by hand. `event` is told of every move.
    For the pins and what was planned see `Sizes`.
    """

    def __init__(
        self,
        mover: Mover,
        outlook: Outlook,
        event: Event = lambda kind, fields: None,
        balancer: Balancer | None = None,
        foreign: Foreign | None = None,
        auto: bool = True,
        kv_pin: int | None = None,
        slots_pin: int | None = None,
        planned_tokens: int | None = None,
        planned_slots: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mover, self.outlook, self.balancer = mover, outlook, balancer or Balancer()
        self.sizes = Sizes(mover, outlook, auto, kv_pin, slots_pin, planned_tokens, planned_slots)
        self.budget = self.start.slabs  # of the arena's slabs, what may be shared out
        self.lent = 0
        self.running: Iterable[Request] = ()
        self.changed: list[Callable[[], None]] = []  # called when the split has changed
        self.arrived: Callable[[Moved], None] = lambda moved: None  # called at the end of a move, and when it must wait
        self.others = Others(foreign, clock)
        self._event, self._clock = event, clock
        self._effect = Effect(self.balancer, outlook)
        self.sizes.use_slots()
        self._hand = BY_HAND
        self._proposal: Proposal | None = None  # of the move under way
        self._steps = 0
        self._pressed = False
        self._stuck_at = -1e9

    # What holds now

    @property
    def start(self) -> Split:
        """The split that was planned."""
        return self.sizes.start

    @property
    def kv_tokens(self) -> int:
        """Tokens over all sessions."""
        return self.sizes.kv_tokens

    @property
    def window_tokens(self) -> int:
        """The longest request that fits now or after a move."""
        return self.sizes.window_tokens(self.budget)

    def view(self, running: Iterable[Request], more_pages: int = 0, pins: dict[str, int] | None = None) -> View:
        """What the balancer sees; with other `pins` than there are, for a question."""
        give, take = self.others.slabs(self.mover.slab_bytes)
        pinned = self.sizes.pins() if pins is None else pins
        return self.outlook.view(
            self._clock(), self.mover, running, self.budget, self.lent, give, take, pinned, more_pages
        )

    # Between steps

    def between(self, running: Iterable[Request], decoding: bool) -> bool:
        """Go on with a move, or see whether there shall be one. True while a move is under way and may go on at once."""
        self._steps += 1
        if self.mover.target is None and self._due():
            self.consider(running)
        return self._go_on(until=None if decoding else self._clock() + PIECES_S)

    def idle(self) -> float | None:
        """Nothing runs. Returns after how many seconds to call again; 0: at once, None: never."""
        if self.mover.target is None:
            found, worked = self._look(IDLE_LOOK_S), self._steps > 0
            if found or worked:
                self._steps = 0
                self.consider([])
            if worked and self.mover.target is None:
                self.mover.defragment(DEFRAGMENT_S)
        if self._go_on(until=self._clock() + PIECES_S):
            return 0.0
        if self.mover.target is not None:
            return RETRY_S
        return IDLE_LOOK_S if self.others.watched else None

    def consider(self, running: Iterable[Request], more_pages: int = 0) -> None:
        """Ask the balancer, and begin the move that it proposes."""
        self._pressed = False
        view = self.view(running, more_pages)
        urgent = view.pins or view.give_back or view.take_back or more_pages or view.need_kv > view.split.kv_slabs
        if not urgent and not (self.sizes.auto and self.mover.experts_move and self.outlook.known):
            return
        proposal = self.balancer.propose(view)
        if proposal is None or not (self.sizes.auto or view.pins or view.give_back or view.take_back):
            return
        self._begin(proposal)

    def make_room(self, pages: int, last: bool = False) -> bool:
        """KV for `pages` more pages at once, for a request that has no other: from spare memory, then from experts. Nothing
        cached is given up, and nothing that lies in memory moves. False when they cannot be had. What was set by hand holds,
        unless this is the `last` way for a request that runs."""
        if pages <= 0 or not self.sizes.auto or (KV in self.sizes.pins() and not last):
            return False
        view, start = self.view(self.running, pages), time.perf_counter()
        self._give_up()
        free = self.budget - view.split.slabs - (0 if last else self.lent)  # what runs comes before other programs
        if not self.mover.make_room(pages, max(0, free)):
            return False
        before, after = view.split, self.mover.split
        self.lent = min(self.lent, self.budget - after.slabs)
        predicted = self.balancer.predict(view, before), self.balancer.predict(view, after)
        proposal = Proposal(before, after, self.lent, "a request needs KV", True, *predicted)
        moved = Moved(before, after, after, seconds=time.perf_counter() - start, pieces=1)
        self._effect.begins()
        self._done(proposal, moved)
        return True

    def press(self, pages: int) -> None:
        """Something cached would be given up for `pages` pages: KV grows first where that is worth more."""
        if self._pressed or not (self.sizes.auto and self.mover.experts_move and self.outlook.known):
            return
        self._pressed = True  # until the balancer is asked again
        if KV in self.sizes.pins() or self.mover.target is not None:
            return
        view = self.view(self.running)
        held = self.outlook.kv_slabs((self.mover.held_pages + pages) * self.outlook.page_tokens)
        proposal = self.balancer.propose(replace(view, need_kv=max(view.need_kv, held)))
        if proposal is not None and (more := proposal.split.kv_slabs - self.mover.split.kv_slabs) > 0:
            self.make_room(more * self.outlook.tokens_per_slab // self.outlook.page_tokens)

    def set_by_hand(self, kv_tokens: int | None, slots: int | None, budget: int, why: str = BY_HAND) -> None:
        """Pin these, or unpin what is None, with so many slabs to share out; the next `between` or `idle` begins the move, which
        is told as `why`."""
        self.budget, self._hand = budget, why
        self._give_up()
        self.sizes.set_by_hand(kv_tokens, slots)
        self._steps = EVERY_STEPS

    def tell_changed(self) -> None:
        """What requests may use is another now."""
        for tell in self.changed:
            tell()

    def stepped(self, decodes: int, prefilled: int, seconds: float) -> None:
        """A step is over; see Outlook.stepped."""
        self.outlook.stepped(decodes, prefilled, seconds)
        self._effect.stepped()

    # Parts

    def _due(self) -> bool:
        found = self._look(LOOK_S)
        if self._steps >= EVERY_STEPS or found:
            self._steps = 0
            return True
        return False

    def _look(self, every_s: float) -> bool:
        return self.others.look(every_s, self.mover.untouched_bytes, self.lent)

    def _begin(self, proposal: Proposal) -> None:
        self._effect.begins()
        try:
            self.mover.begin(proposal.split)
        except ValueError as failure:
            log.warning("a move was refused: %s", failure)
            return
        self.lent = proposal.lent
        self._proposal = replace(proposal, reason=self._hand) if proposal.reason == BY_HAND else proposal
        self._stuck_at = -1e9

    def _go_on(self, until: float | None) -> bool:
        while self.mover.target is not None:
            now = self._clock()
            if now - self._stuck_at < RETRY_S:
                return False
            moved = self.mover.advance()
            if moved is None:
                if until is None or self._clock() >= until:
                    return True
                continue
            self._ended(moved)
        return False

    def _ended(self, moved: Moved) -> None:
        proposal = self._proposal
        if not moved.complete and proposal is not None and self.sizes.pins():
            if self._stuck_at < 0:
                self.arrived(moved)
            self._stuck_at = self._clock()
            return
        if not moved.complete:
            self._give_up()
        self._proposal = None
        if proposal is None:
            self._tell(moved, self._hand)
        else:
            self._done(proposal, moved)
        self.arrived(moved)

    def _done(self, proposal: Proposal, moved: Moved) -> None:
        """A move is over; what it gives is measured from now on."""
        self._tell(moved, proposal.reason)
        self._effect.of(proposal, moved)

    def _give_up(self) -> None:
        """The move under way ends where it is."""
        self.mover.stop()
        self._proposal = None
        self._stuck_at = -1e9

    def _tell(self, moved: Moved, reason: str) -> None:
        self.sizes.use_slots()
        if moved.before != moved.after or moved.complete:
            self._event("moved", {"reason": reason, **moved.to_json()})
            self.tell_changed()
