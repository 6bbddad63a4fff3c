"""How the slabs of an arena are shared out: what a move changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.memory.arena import Arena

KV, STATE, EXPERTS, LENT = "kv", "state", "experts", "lent"  # tenants; lent: to other programs


@dataclass(frozen=True, slots=True)
class Split:
    """Slabs granted to each tenant, whether they hold something now or not."""

    kv_slabs: int
    state_slabs: int
    experts_slabs: int

    @property
    def slabs(self) -> int:
        return self.kv_slabs + self.state_slabs + self.experts_slabs

    def get(self, tenant: str) -> int:
        """The slabs of a tenant by its name in the arena."""
        return {KV: self.kv_slabs, STATE: self.state_slabs, EXPERTS: self.experts_slabs}[tenant]

    @staticmethod
    def of(arena: Arena) -> Split:
        """What each tenant may hold, or holds where that is more. A tenant without a limit is granted what it holds."""

        def granted(tenant: str) -> int:
            held = len(arena.held(tenant))
            return max(held, arena.limit(tenant)) if arena.limited(tenant) else held

        return Split(granted(KV), granted(STATE), granted(EXPERTS))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
