"""Memory that may still be taken on this machine: what the system and the memory groups around this process leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_FREE, _CONTAINER = "free memory", "the memory limit of this container"
_NEW_FILES = ("memory.max", "memory.current", "inactive_file")
_OLD_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class Available:
    """`bytes` may still be taken, of `total_bytes` that programs share here; `limited_by` says in words what sets the bound."""

    bytes: int
    total_bytes: int
    limited_by: str


def read_available(meminfo: Path = MEMINFO, groups: Path = GROUPS, membership: Path = MEMBERSHIP) -> Available:
    """The smallest of free memory and what each group around this process has left. Raises OSError without `meminfo`."""
    lines = meminfo.read_text().splitlines()
    free = _kilobytes(lines, "MemAvailable:")
    if free is None:
        raise OSError(f"{meminfo} has no MemAvailable line")
    bounds = [Available(free, _kilobytes(lines, "MemTotal:") or free, _FREE)]
    for folder, files in _folders(groups, membership):
        left = _remainder(folder, *files)
        if left is not None:
            bounds.append(Available(left[0], left[1], _CONTAINER))
    return min(bounds, key=lambda bound: bound.bytes)


def _kilobytes(lines: list[str], name: str) -> int | None:
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _folders(groups: Path, membership: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Every group that this process is in, up to the outermost that can be seen, and how its files are called."""
    inside = {"": "/", "memory": "/"}  # of the unified hierarchy, and of the memory controller's own in the older one
    try:
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in inside:
                inside[controllers] = path
    except (OSError, ValueError):
        pass  # only the root is looked at then
    for root, path, files in ((groups, inside[""], _NEW_FILES), (groups / "memory", inside["memory"], _OLD_FILES)):
        folder = root / path.lstrip("/")
        while folder != root and root in folder.parents:
            yield folder, files
            folder = folder.parent
        yield root, files


def _remainder(folder: Path, limit_file: str, used_file: str, reclaimable: str) -> tuple[int, int] | None:
    """(bytes left, limit) of a group; None where it has no limit. Its idle file cache counts as left: the kernel drops it first."""
    try:
        limit, used = (folder / limit_file).read_text().strip(), int((folder / used_file).read_text())
        if limit == "max" or int(limit) >= 1 << 60:
            return None
    except (OSError, ValueError):
        return None
    cache = 0
    try:
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == reclaimable:
                cache = int(value)
    except (OSError, ValueError):
        pass  # an old kernel does not tell
    return max(0, int(limit) - max(0, used - cache)), int(limit)
