"""Who has how much memory, decided and changed while requests run: the balancer is asked, a move is made piece by piece between
steps, and its effect is measured and told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from engine.memory.balance.view import Proposal, View
from engine.memory.balancer import BY_HAND, Balancer
from engine.memory.split import EXPERTS, KV
from engine.scheduler.moves import Moved, Mover
from engine.scheduler.outlook import Outlook
from engine.scheduler.request import Request

log = logging.getLogger(__name__)

EVERY_STEPS = 64
LOOK_S = 0.1  # how often the memory of other programs is looked at while something runs,
IDLE_LOOK_S = 0.25  # and while nothing does
RETRY_S = 0.25  # what a move waits for is looked at again so soon
PIECES_S = 0.02  # of a move at once, while nothing decodes
DEFRAGMENT_S = 0.01
MEASURED_STEPS = 32  # decode steps after a move that tell what it gave

Event = Callable[[str, dict[str, object]], None]


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


class Balancing:
    """Called from the loop, between steps. `pins` are slabs set by hand, `kv_pin` and `slots_pin` what was asked for.

    `auto`: the balancer may move what nobody set by hand. `event` is told of every move. `planned_tokens` of KV and
    `planned_slots` of experts are what the split at the start is for.
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
        self.start = mover.split
        self.budget = self.start.slabs  # of the arena's slabs, what may be shared out
        self.lent = 0
        self.auto = auto
        self.kv_pin, self.slots_pin = kv_pin, slots_pin
        self.running: Iterable[Request] = ()
        self.spare: Spare | None = None
        self.changed: list[Callable[[], None]] = []  # called when the split has changed
        self.arrived: Callable[[Moved], None] = lambda moved: None  # called at the end of a move, and when it must wait
        self._event, self._foreign, self._clock = event, foreign, clock
        self._planned_tokens = planned_tokens  # of the split at the start, whose last slabs may have room for some more
        self._planned_slots = planned_slots
        self._used_slots: int | None = -1  # so many, None: all of them; -1: not said yet
        self._use_slots()
        self._hand = BY_HAND
        self._proposal: Proposal | None = None  # of the move under way
        self._measuring: tuple[Proposal, Moved, float | None] | None = None
        self._rate_before: float | None = None
        self._steps = 0
        self._pressed = False
        self._looked_at = self._stuck_at = -1e9

    # What holds now

    @property
    def kv_tokens(self) -> int:
        """Tokens over all sessions: as asked where that was by hand."""
        slabs = self.mover.split.kv_slabs
        room = self.outlook.kv_tokens(slabs)
        if slabs == self.start.kv_slabs and self._planned_tokens is not None:
            room = self._planned_tokens
        return room if self.kv_pin is None else min(room, self.kv_pin)

    @property
    def window_tokens(self) -> int:
        """The longest request that fits now or after a move."""
        tokens = self.kv_tokens
        if self.kv_pin is None and self.auto and (most := self._most_kv()) > self.mover.split.kv_slabs:
            tokens = self.outlook.kv_tokens(most)
        return min(self.outlook.window_tokens, tokens)

    def pins(self) -> dict[str, int]:
        """Slabs that tenants are to have because somebody said so; all of them where nothing moves by itself."""
        found = {} if self.kv_pin is None else {KV: self.outlook.kv_slabs(self.kv_pin)}
        if self.slots_pin is not None and self.mover.experts_move:
            found[EXPERTS] = self.mover.slabs_of(self.slots_pin)
        return found

    def unmet(self) -> bool:
        """What was set by hand does not hold yet, because requests that run are in the way."""
        split = self.mover.split
        return any(
            split.get(tenant) > slabs if tenant == KV else split.get(tenant) != slabs
            for tenant, slabs in self.pins().items()
        )

    def view(self, running: Iterable[Request], more_pages: int = 0, pins: dict[str, int] | None = None) -> View:
        """What the balancer sees; with other `pins` than there are, for a question."""
        slab_bytes = self.mover.slab_bytes
        give = take = 0
        if self.spare is not None:
            give = -(-self.spare.give_back_bytes // slab_bytes)
            take = self.spare.may_take_bytes // slab_bytes
        pinned = self.pins() if pins is None else pins
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
        return None if self._foreign is None else IDLE_LOOK_S

    def consider(self, running: Iterable[Request], more_pages: int = 0) -> None:
        """Ask the balancer, and begin the move that it proposes."""
        self._pressed = False
        view = self.view(running, more_pages)
        urgent = view.pins or view.give_back or view.take_back or more_pages or view.need_kv > view.split.kv_slabs
        if not urgent and not (self.auto and self.mover.experts_move and self.outlook.known):
            return
        proposal = self.balancer.propose(view)
        if proposal is None or not (self.auto or view.pins or view.give_back or view.take_back):
            return
        self._begin(proposal)

    def make_room(self, pages: int, last: bool = False) -> bool:
        """KV for `pages` more pages at once, for a request that has no other: from spare memory, then from experts. Nothing
        cached is given up, and nothing that lies in memory moves. False when they cannot be had. What was set by hand holds,
        unless this is the `last` way for a request that runs."""
        if pages <= 0 or not self.auto or (KV in self.pins() and not last):
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
        self._rate_before = self._measured()
        self._done(proposal, moved)
        return True

    def press(self, pages: int) -> None:
        """Something cached would be given up for `pages` pages: KV grows first where that is worth more."""
        if self._pressed or not (self.auto and self.mover.experts_move and self.outlook.known):
            return
        self._pressed = True  # until the balancer is asked again
        if KV in self.pins() or self.mover.target is not None:
            return
        view = self.view(self.running)
        held = self.outlook.kv_slabs((self.mover.held_pages + pages) * self.outlook.page_tokens)
        proposal = self.balancer.propose(replace(view, need_kv=max(view.need_kv, held)))
        if proposal is not None and (more := proposal.split.kv_slabs - self.mover.split.kv_slabs) > 0:
            self.make_room(more * self.outlook.tokens_per_slab // self.outlook.page_tokens)

    def set_by_hand(self, kv_tokens: int | None, slots: int | None, budget: int, why: str = BY_HAND) -> None:
        """Pin these, or unpin what is None, with so many slabs to share out; the next `between` or `idle` begins the move, which
        is told as `why`."""
        self.kv_pin, self.slots_pin, self.budget, self._hand = kv_tokens, slots, budget, why
        self._give_up()
        self._used_slots = -1  # said again, and checked
        self._use_slots()
        self._steps = EVERY_STEPS

    def tell_changed(self) -> None:
        """What requests may use is another now."""
        for tell in self.changed:
            tell()

    def stepped(self, decodes: int, prefilled: int, seconds: float) -> None:
        """A step is over; see Outlook.stepped."""
        self.outlook.stepped(decodes, prefilled, seconds)
        if self._measuring is not None and self.outlook.marked_steps >= MEASURED_STEPS:
            self._measured()

    # Parts

    def _most_kv(self) -> int:
        """Slabs that KV could have if everybody else had the least."""
        split = self.mover.split
        experts = self.mover.least().experts_slabs
        if self.slots_pin is not None:
            experts = min(split.experts_slabs, self.mover.slabs_of(self.slots_pin))
        return max(split.kv_slabs, self.budget - split.state_slabs - experts)

    def _due(self) -> bool:
        found = self._look(LOOK_S)
        if self._steps >= EVERY_STEPS or found:
            self._steps = 0
            return True
        return False

    def _look(self, every_s: float) -> bool:
        """True when other programs want memory, or do no longer."""
        now = self._clock()
        if self._foreign is None or now - self._looked_at < every_s:
            return False
        self._looked_at = now
        self.spare = self._foreign.look(self.mover.untouched_bytes)
        return self.spare.give_back_bytes > 0 or (self.lent > 0 and self.spare.may_take_bytes > 0)

    def _begin(self, proposal: Proposal) -> None:
        before = self._measured()
        try:
            self.mover.begin(proposal.split)
        except ValueError as failure:
            log.warning("a move was refused: %s", failure)
            return
        self.lent = proposal.lent
        self._proposal = replace(proposal, reason=self._hand) if proposal.reason == BY_HAND else proposal
        self._rate_before = before
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
        if not moved.complete and proposal is not None and self.pins():
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
        self._measuring = proposal, moved, self._rate_before
        self.outlook.mark()

    def _give_up(self) -> None:
        """The move under way ends where it is."""
        self.mover.stop()
        self._proposal = None
        self._stuck_at = -1e9

    def _measured(self) -> float | None:
        """What the last move gave is known as well as it will be. Returns the decode rate since then."""
        rate = self.outlook.mark()
        if self._measuring is not None:
            (proposal, moved, before), self._measuring = self._measuring, None
            self.balancer.note_effect(proposal, time.time(), moved.after, before, rate, moved.seconds)
        return rate

    def _use_slots(self) -> None:
        """As many as were asked for or planned; once experts have more or fewer slabs than planned, all that these hold."""
        slots = self.slots_pin
        if slots is None and self.mover.split.experts_slabs == self.start.experts_slabs:
            slots = self._planned_slots
        if slots != self._used_slots:
            self._used_slots = slots
            self.mover.ask(slots)

    def _tell(self, moved: Moved, reason: str) -> None:
        self._use_slots()
        if moved.before != moved.after or moved.complete:
            self._event("moved", {"reason": reason, **moved.to_json()})
            self.tell_changed()
