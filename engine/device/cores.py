"""Cores of several engines on one machine: each takes its own, as far as there are enough.

A core is claimed by a name in the system's abstract socket space, which goes with the process whatever ends it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_held: dict[int, socket.socket] = {}  # for the life of this process


@dataclass(frozen=True, slots=True)
class Cores:
    """The physical cores this process took, by their lowest processor, and those it wanted that another engine has."""

    own: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def warning(self) -> str:
        """One sentence when engines get in each other's way, else empty."""
        if not self.shared:
            return ""
        count = len(self.own) + len(self.shared)
        return (
            f"Another engine on this machine uses {len(self.shared)} of the {count} cores that this one computes with: "
            "both will be slower. Stop one with ft engine stop, or give each a part with --threads."
        )


def claim(threads: int, scope: str = "", sysfs: Path = Path("/sys/devices/system/cpu")) -> Cores:
    """Claim `threads` of the physical cores this process may run on; this thread and those it starts then run on these.

    With fewer cores free, the rest is shared and nothing is pinned. Claims of one process add up to what it asked for last.
    `scope` separates tests from engines.
    """
    allowed = os.sched_getaffinity(0)
    cores = {min(group): group for group in (_siblings(cpu, sysfs) & allowed for cpu in allowed)}
    free = [core for core in sorted(cores) if core in _held or _take(core, scope)]
    for core in free[threads:]:
        _held.pop(core).close()
    own = tuple(free[:threads])
    wanted = min(threads, len(cores))
    shared = tuple(core for core in sorted(cores) if core not in own)[: wanted - len(own)]
    if own and not shared and len(own) < len(cores):
        os.sched_setaffinity(0, set().union(*(cores[core] for core in own)))
    return Cores(own, shared)


def _siblings(cpu: int, sysfs: Path) -> set[int]:
    """The processors that share a physical core with `cpu`, itself included."""
    try:
        text = (sysfs / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        ranges = [part.split("-") for part in text.strip().split(",")]
        return {cpu}.union(*(range(int(ends[0]), int(ends[-1]) + 1) for ends in ranges))
    except (OSError, ValueError):
        return {cpu}


def _take(core: int, scope: str) -> bool:
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0ft-core-{scope}{core}")
    except OSError:
        name.close()
        return False
    _held[core] = name
    return True
