"""Holds memory so that the rest of the machine has little: `python bench/lock_memory.py --leave BYTES` (as root).

Says "locked N" on stdout when no more than `--leave` bytes are available, and holds on until stdin is closed. The kernel is
told to end this process first when memory runs out, so that a mistake costs the measurement and not the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import sys
from pathlib import Path

BLOCK = 64 << 20


def available() -> int:
    """MemAvailable in bytes: free memory and page cache that can be dropped."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def lock(leave: int) -> list[mmap.mmap]:
    """Lock blocks until `leave` bytes are available. Raises OSError when the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    held = []
    while available() - leave >= BLOCK:
        block = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(BLOCK)):
            raise OSError(ctypes.get_errno(), "memory cannot be locked; this needs root")
        held.append(block)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave", type=int, required=True)
    leave = parser.parse_args().leave
    Path("/proc/self/oom_score_adj").write_text("1000")
    held = lock(leave)
    print(f"locked {len(held) * BLOCK}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
