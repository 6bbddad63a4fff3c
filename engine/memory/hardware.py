"""How much memory this process may still take, and how many cores it has."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

from engine.memory.available import GROUPS, MEMINFO, read_available

STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Hardware:
    available_bytes: int
    cores: int
    limited_by: str = "free memory"  # what set available_bytes, in words


def read_hardware(meminfo: Path = MEMINFO, cgroup: Path = GROUPS) -> Hardware:
    """The smallest of free memory, the cgroups' remainders and the process limits. Raises OSError without `meminfo`."""
    found = read_available(meminfo, cgroup)
    bounds = [(found.bytes, found.limited_by)]
    for limit, words in ((resource.RLIMIT_DATA, "ulimit -d"), (resource.RLIMIT_AS, "ulimit -v")):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            bounds.append((soft, words))
    available_bytes, words = min(bounds)
    return Hardware(available_bytes, len(os.sched_getaffinity(0)), words)


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


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """In the system's words; "" when it does not say."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def machine_text(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor, and how many cores this process has of it: whose measured bandwidths are meant."""
    return f"{processor(cpuinfo) or platform.machine()} x{len(os.sched_getaffinity(0))}"


def cores_text() -> str:
    """The same where rates of prefills and decode steps are meant, of any system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor() or platform.processor()}, {cores} cores"


def resident_bytes(status: Path = STATUS) -> int:
    """Memory this process holds now. Pages of mapped files do not count, here and below: they are shared, the kernel drops
    them first, and how many are mapped depends on how the libraries came to this disk (tens of MiB between two installations)."""
    return _kilobytes(status, "VmRSS:") - _kilobytes(status, "RssFile:")


def high_water_bytes(status: Path = STATUS) -> int:
    """The most memory this process has held since it began, or since `forget_high_water`."""
    return _kilobytes(status, "VmHWM:") - _kilobytes(status, "RssFile:")


def forget_high_water(clear: Path = Path("/proc/self/clear_refs")) -> bool:
    """Begin a new high-water mark; False where the system does not let us."""
    try:
        clear.write_text("5")
    except OSError:
        return False
    return True


def _kilobytes(status: Path, name: str) -> int:
    for line in status.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
