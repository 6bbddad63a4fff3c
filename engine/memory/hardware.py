"""How much memory this process may still take, and how many cores it has."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hardware:
    available_bytes: int
    cores: int
    limited_by: str = "free memory"  # what set available_bytes, in words


def read_hardware(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> Hardware:
    """The smallest of free memory, the cgroup's remainder and the process limits. Raises OSError without `meminfo`."""
    bounds = [(_mem_available(meminfo), "free memory")]
    remainder = _cgroup_remainder(cgroup)
    if remainder is not None:
        bounds.append((remainder, "the memory limit of this container"))
    for limit, words in ((resource.RLIMIT_DATA, "ulimit -d"), (resource.RLIMIT_AS, "ulimit -v")):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            bounds.append((soft, words))
    available_bytes, words = min(bounds)
    return Hardware(available_bytes, len(os.sched_getaffinity(0)), words)


def _mem_available(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{meminfo} has no MemAvailable line")


def _cgroup_remainder(cgroup: Path) -> int | None:
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):
        return None


def physical_cores(cpuinfo: Path = Path("/proc/cpuinfo")) -> int:
    """Cores this process may run on, hyper-threads counted once; every processor counts where the kernel does not tell."""
    allowed = os.sched_getaffinity(0)
    cores: set[tuple[str, str]] = set()
    package = core = ""
    processor = -1
    for line in [*cpuinfo.read_text().splitlines(), ""]:
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "processor":
            processor, package, core = int(value), "", value
        elif name == "physical id":
            package = value
        elif name == "core id":
            core = value
        elif not name and processor in allowed:
            cores.add((package, core))
    return max(1, len(cores))


def resident_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Memory this process holds now."""
    for line in status.read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
