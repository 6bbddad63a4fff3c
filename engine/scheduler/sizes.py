"""How much KV and how many expert slots there are now: as asked for by hand, as planned, or as the slabs have room for."""

from __future__ import annotations

from dataclasses import replace

from engine.memory.split import EXPERTS, KV
from engine.scheduler.moves import Mover
from engine.scheduler.outlook import Outlook


class Sizes:
    """`kv_pin` and `slots_pin` are what was asked for, `planned_tokens` of KV and `planned_slots` of experts what the split at the
    start is for. `auto`: what nobody set by hand may move."""

    def __init__(
        self,
        mover: Mover,
        outlook: Outlook,
        auto: bool = True,
        kv_pin: int | None = None,
        slots_pin: int | None = None,
        planned_tokens: int | None = None,
        planned_slots: int | None = None,
    ) -> None:
        self.start = mover.split
        self.auto = auto
        self.kv_pin, self.slots_pin = kv_pin, slots_pin
        self._mover, self._outlook = mover, outlook
        self._planned_tokens = planned_tokens  # of the split at the start, whose last slabs may have room for some more
        self._planned_slots = planned_slots
        self._used_slots: int | None = -1  # so many, None: all of them; -1: not said yet

    @property
    def kv_tokens(self) -> int:
        """Tokens over all sessions: as asked where that was by hand."""
        slabs = self._mover.split.kv_slabs
        room = self._outlook.kv_tokens(slabs)
        if slabs == self.start.kv_slabs and self._planned_tokens is not None:
            room = self._planned_tokens
        return room if self.kv_pin is None else min(room, self.kv_pin)

    def window_tokens(self, budget: int) -> int:
        """The longest request that fits now, or after a move with so many slabs to share out."""
        tokens = self.kv_tokens
        if self.kv_pin is None and self.auto and (most := self._most_kv(budget)) > self._mover.split.kv_slabs:
            tokens = self._outlook.kv_tokens(most)
        return min(self._outlook.window_tokens, tokens)

    def pins(self) -> dict[str, int]:
        """Slabs that tenants are to have because somebody said so."""
        found = {} if self.kv_pin is None else {KV: self._outlook.kv_slabs(self.kv_pin)}
        if self.slots_pin is not None and self._mover.experts_move:
            found[EXPERTS] = self._mover.slabs_of(self.slots_pin)
        return found

    def unmet(self) -> bool:
        """What was set by hand does not hold yet, because requests that run are in the way."""
        split = self._mover.split
        return any(
            split.get(tenant) > slabs if tenant == KV else split.get(tenant) != slabs
            for tenant, slabs in self.pins().items()
        )

    def set_by_hand(self, kv_tokens: int | None, slots: int | None) -> None:
        """Pin these, or unpin what is None. The use of slots is said again, and checked."""
        self.kv_pin, self.slots_pin = kv_tokens, slots
        self._used_slots = -1
        self.use_slots()

    def serve_anew(self) -> None:
        """Experts are served in another way: where they have no slots that move, the start is as if they never had."""
        if not self._mover.experts_move:
            self.start = replace(self.start, experts_slabs=self._mover.split.experts_slabs)
            self.slots_pin = None
        self._used_slots = -1
        self.use_slots()

    def use_slots(self) -> None:
        """As many as were asked for or planned; once experts have more or fewer slabs than planned, all that these hold."""
        slots = self.slots_pin
        if slots is None and self._mover.split.experts_slabs == self.start.experts_slabs:
            slots = self._planned_slots
        if slots != self._used_slots:
            self._used_slots = slots
            self._mover.ask(slots)

    def _most_kv(self, budget: int) -> int:
        """Slabs that KV could have if everybody else had the least."""
        split = self._mover.split
        experts = self._mover.least().experts_slabs
        if self.slots_pin is not None:
            experts = min(split.experts_slabs, self._mover.slabs_of(self.slots_pin))
        return max(split.kv_slabs, budget - split.state_slabs - experts)
