"""One allocation of equal slabs; tenants lease slabs. Bookkeeping only: who holds which slab, never what is in it.

Memory moves between tenants by changing leases between two steps, so the base address and the slab size never change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from engine.errors import FtError


class ArenaFull(FtError):
    """A lease was asked for beyond the free slabs or the tenant's limit. Nothing was leased."""

    code = "FT-E0513 arena-full"


class Arena:
    """`slabs` slabs of `slab_bytes`; slab i covers bytes [i * slab_bytes, (i + 1) * slab_bytes).

    `limits` caps tenants, in slabs; a tenant without a limit may lease whatever is free. Limits that add up to no more
    than `slabs` are a guarantee: the static split.
    """

    def __init__(self, slab_bytes: int, slabs: int, limits: Mapping[str, int] | None = None) -> None:
        if slab_bytes <= 0 or slabs < 0:
            raise ValueError(f"an arena of {slabs} slabs of {slab_bytes} bytes")
        self.slab_bytes = slab_bytes
        self.slabs = slabs
        self._limits = dict(limits or {})
        self._free = list(range(slabs))
        self._owner: list[str | None] = [None] * slabs
        self._held: dict[str, set[int]] = {}
        self._touched: set[int] = set()  # leased since they were last emptied

    @property
    def bytes(self) -> int:
        return self.slab_bytes * self.slabs

    @property
    def free_slabs(self) -> int:
        return len(self._free)

    def limit(self, tenant: str) -> int:
        """The most slabs `tenant` may hold."""
        return self._limits.get(tenant, self.slabs)

    def limited(self, tenant: str) -> bool:
        """Whether `tenant` has a limit of its own."""
        return tenant in self._limits

    def set_limit(self, tenant: str, slabs: int) -> None:
        """Cap `tenant` at `slabs`. It may already hold more; then it can only give back until it is under the cap."""
        if slabs < 0:
            raise ValueError(f"a limit of {slabs} slabs")
        self._limits[tenant] = slabs

    def held(self, tenant: str) -> frozenset[int]:
        """The slabs `tenant` holds now."""
        return frozenset(self._held.get(tenant, ()))

    def available(self, tenant: str) -> int:
        """How many more slabs `lease` would grant `tenant` now."""
        return max(0, min(len(self._free), self.limit(tenant) - len(self._held.get(tenant, ()))))

    def lease(self, tenant: str, n: int) -> list[int]:
        """`n` slabs for `tenant`, lowest free ids first. Raises ArenaFull and leases none when fewer are available."""
        if n < 0:
            raise ValueError(f"a lease of {n} slabs")
        if n > self.available(tenant):
            raise ArenaFull(
                f"{tenant} asks for {n} slabs of {self.slab_bytes} bytes; {self.available(tenant)} are available"
            )
        taken = [heapq.heappop(self._free) for _ in range(n)]
        for slab in taken:
            self._owner[slab] = tenant
        if taken:
            self._held.setdefault(tenant, set()).update(taken)
            self._touched.update(taken)
        return taken

    def spare(self) -> int:
        """Free slabs that no limit promises to anybody: what may be granted, or given to other programs."""
        promised = sum(max(0, limit - len(self._held.get(tenant, ()))) for tenant, limit in self._limits.items())
        return max(0, len(self._free) - promised)

    def untouched(self) -> int:
        """Slabs that are granted, or may be, and have held nothing since they were last empty: memory that is still to come."""
        return self.slabs - self.spare() - len(self._touched.difference(self._spare()))

    def empty(self, most: int) -> list[int]:
        """Take note that the memory of up to `most` spare slabs is given back. Returns those, which held something since they
        were last given back: the highest ones, since leases take the lowest."""
        dirty = sorted(self._touched.intersection(self._spare()))[-most:]
        self._touched.difference_update(dirty)
        return dirty

    def release(self, tenant: str, slabs: Iterable[int]) -> None:
        """Give slabs back. Raises ValueError, and releases none, when `tenant` does not hold each of them once."""
        given = list(slabs)
        if len(set(given)) != len(given) or any(not self._holds(tenant, slab) for slab in given):
            raise ValueError(f"{tenant} does not hold slabs {given}")
        for slab in given:
            self._owner[slab] = None
            self._held[tenant].discard(slab)
            heapq.heappush(self._free, slab)

    def map(self) -> dict[str, int]:
        """Slabs per tenant, plus "free"."""
        return {**{tenant: len(held) for tenant, held in sorted(self._held.items())}, "free": len(self._free)}

    def check(self) -> None:
        """Raises AssertionError unless every slab is free or held by exactly one tenant."""
        seen = sorted([*self._free, *(slab for held in self._held.values() for slab in held)])
        assert seen == list(range(self.slabs)), "slabs are lost or leased twice"
        for slab, owner in enumerate(self._owner):
            assert (owner is None) == (slab in self._free), f"slab {slab} has owner {owner} and the free list disagrees"
            assert owner is None or slab in self._held[owner], f"slab {slab} is not in the set of {owner}"

    def _spare(self) -> list[int]:
        return sorted(self._free, reverse=True)[: self.spare()]

    def _holds(self, tenant: str, slab: int) -> bool:
        return 0 <= slab < self.slabs and self._owner[slab] == tenant
